package modeltest

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent/chat"
)

// openAIRequest holds what the API takes from us; it refuses members that it does not know.
// Source: OpenAI API reference, "Create chat completion".
type openAIRequest struct {
	Model               string          `json:"model"`
	Messages            []openAIMessage `json:"messages"`
	Tools               []openAITool    `json:"tools"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	Stream              bool            `json:"stream"`
}

type openAIMessage struct {
	Role       string       `json:"role"`
	Content    *string      `json:"content"`
	Refusal    *string      `json:"refusal,omitzero"`
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

type openAICall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type openAITool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Parameters  jsontext.Value `json:"parameters"`
	} `json:"function"`
}

type openAIResponse struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []openAIChoice `json:"choices"`
	Usage   openAIUsage    `json:"usage"`
}

type openAIChoice struct {
	Index        int           `json:"index"`
	Message      openAIMessage `json:"message"`
	FinishReason string        `json:"finish_reason"`
}

type openAIUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func (s *Server) serveOpenAI(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c := Call{Protocol: OpenAI, EffectKey: r.Header.Get("Idempotency-Key"), Authorization: r.Header.Get("Authorization")}
	var in openAIRequest
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil {
		c.Problem = "We could not parse the JSON body of your request: " + err.Error()
	} else {
		c.Model, c.Request, c.Problem = in.Model, in.request(), in.problem()
	}
	c.Request.EffectKey = c.EffectKey

	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	reply := s.record(c)
	if key != "" && c.Authorization != "Bearer "+key {
		// Some servers repeat the key that they do not know.
		reply = Fail(http.StatusUnauthorized, "Incorrect API key provided: "+c.Authorization)
	}
	if !reply.wait(r.Context()) {
		return
	}
	w.Header().Set("X-Request-Id", "req_1")
	switch reply.kind {
	case throttled:
		if reply.after > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(reply.after.Seconds())))
		}
		reply.send(w, http.StatusTooManyRequests, openAIError("Rate limit reached for requests", "requests", "rate_limit_exceeded"))
	case failed:
		kind := "invalid_request_error"
		if reply.code >= http.StatusInternalServerError {
			kind = "server_error"
		}
		reply.send(w, reply.code, openAIError(reply.said, kind, ""))
	default:
		reply.send(w, http.StatusOK, reply.openAI(in.Model, body))
	}
}

func (r Reply) openAI(model string, request []byte) []byte {
	message := openAIMessage{Role: "assistant"}
	finish := "stop"
	switch r.kind {
	case filtered:
		finish = "content_filter"
	case declined:
		message.Refusal = &r.said
	case length:
		finish = "length"
	}
	if r.text != "" {
		message.Content = &r.text
	}
	for _, c := range r.calls {
		call := openAICall{ID: c.ID, Type: "function"}
		call.Function.Name, call.Function.Arguments = c.Name, string(c.Input)
		message.ToolCalls = append(message.ToolCalls, call)
		if r.kind != length {
			finish = "tool_calls"
		}
	}
	u := r.used(request)
	return marshal(openAIResponse{
		ID: "chatcmpl-1", Object: "chat.completion", Created: time.Now().Unix(), Model: model,
		Choices: []openAIChoice{{Message: message, FinishReason: finish}},
		Usage:   openAIUsage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens},
	})
}

func openAIError(message, kind, code string) []byte {
	type details struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	d := details{Message: message, Type: kind}
	if code != "" {
		d.Code = &code
	}
	return marshal(struct {
		Error details `json:"error"`
	}{d})
}

func (in openAIRequest) request() chat.Request {
	r := chat.Request{MaxTokens: max(in.MaxTokens, in.MaxCompletionTokens)}
	for _, m := range in.Messages {
		text := ""
		if m.Content != nil {
			text = *m.Content
		}
		if m.Role == "system" {
			r.System += text
			continue
		}
		message := chat.Message{Role: chat.Role(m.Role), Text: text, ToolCallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			message.ToolCalls = append(message.ToolCalls, chat.ToolCall{ID: c.ID, Name: c.Function.Name, Input: jsontext.Value(c.Function.Arguments)})
		}
		r.Messages = append(r.Messages, message)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, chat.Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	return r
}

// problem is what the API would say to a request that breaks its rules.
func (in openAIRequest) problem() string {
	if in.Model == "" {
		return "you must provide a model parameter"
	}
	if in.Stream {
		return "this server does not stream"
	}
	for _, m := range in.Messages {
		if m.Role != "assistant" && m.Content == nil {
			return "Invalid value for 'content': expected a string, got null."
		}
		if m.Role == "assistant" && m.Content == nil && len(m.ToolCalls) == 0 {
			return "Invalid value for 'content': expected a string, got null."
		}
	}
	for _, t := range in.Tools {
		if t.Type != "function" {
			return "Invalid value: 'type'. Supported values are: 'function'."
		}
	}
	return problem(in.request(), "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
		"messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
}

func marshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // a script with text that is not UTF-8
	}
	return raw
}
