// Package chat is what a model is asked and what it answers, whoever serves it.
package chat

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Model completes conversations. Implementations are safe for concurrent use and do not retry: their errors say
// what to do instead. One marked by [agentworker/internal/task.RetryAfter] is the provider's throttling, with its own
// delay; one marked by [agentworker/internal/task.Permanent] cannot be mended by asking again; any other is worth a
// retry. Each carries a code.
type Model interface {
	Complete(ctx context.Context, r Request) (Response, error)
}

// CodeCut is the code of an answer that reached [Request.MaxTokens] with nothing before that can be used.
const CodeCut = "MODEL_ANSWER_CUT"

// Role is who speaks. What the system says stands in [Request.System].
type Role string

// The roles of a conversation.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // answers one of the assistant's calls
)

// Request is what a model is asked.
type Request struct {
	System   string    // instructions that stand above the conversation; empty: none
	Messages []Message // oldest first, at least one, the last not the assistant's
	Tools    []Tool    // what the model may call; empty: nothing
	// MaxTokens bounds the answer, in tokens; 0: the model's own bound.
	MaxTokens int
	// EffectKey names this call: the same whenever the same call is repeated. Providers that know such keys get it.
	EffectKey string
}

// Message is one turn of a conversation.
type Message struct {
	Role       Role       `json:"role"`
	Text       string     `json:"text,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // of the assistant; each is answered by a message of RoleTool
	ToolCallID string     `json:"tool_call_id,omitempty"` // with RoleTool: the call that the text answers
	ToolError  bool       `json:"tool_error,omitempty"`   // with RoleTool: the text says what was wrong with the call
}

// Tool is something that a model may ask to be done.
type Tool struct {
	Name        string         // letters, digits, _ and -, at most 64
	Description string         // for the model: when to call it and what it gives
	Schema      jsontext.Value // JSON schema of the input, which is an object
}

// ToolCall is a model's wish that a tool be called. Nothing in it has been checked: the name may be unknown, and the input
// may not be what the tool's schema asks for. It is JSON all the same: what a model wrote that is none is a JSON string here.
type ToolCall struct {
	ID    string         `json:"id"` // unique within the conversation
	Name  string         `json:"name"`
	Input jsontext.Value `json:"input"`
}

// Response is what a model answers: text, calls of tools, or both.
type Response struct {
	Text      string     `json:"text,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	Usage     Usage      `json:"usage"`
	Model     string     `json:"model"`          // that answered, for the reader of the result
	Stop      string     `json:"stop,omitempty"` // why it stopped: one of the Stop constants
}

// Why a model stopped.
const (
	StopEnd    = "end"        // it had said everything
	StopTools  = "tool_calls" // it waits for the results of its calls
	StopLength = "length"     // the answer reached the bound on its tokens and is cut there
)

// Usage is what a call cost, in the model's tokens; 0 where the provider does not say.
type Usage struct {
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
}
