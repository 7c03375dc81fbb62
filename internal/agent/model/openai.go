//go:build !slim || openai

package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sashabaranov/go-openai"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/upstream"
	"agentworker/internal/awsclient"
)

// DefaultOpenAIURL is where OpenAI itself serves the API.
const DefaultOpenAIURL = "https://api.openai.com/v1"

// maxAnswerBytes bounds what is read of an answer: far more than any model says at once.
const maxAnswerBytes = 16 << 20

// OpenAIConfig says which model serves the chat completions API, and where.
type OpenAIConfig struct {
	Model   string
	BaseURL string        // up to and with /v1; "": [DefaultOpenAIURL]
	Key     *Key          // nil: calls carry none
	Timeout time.Duration // of one call; 0: [DefaultTimeout]
}

// OpenAI is a model behind OpenAI's chat completions API, which vLLM, Ollama and many others serve too. It makes one
// request a call, without retries. It is safe for concurrent use.
type OpenAI struct {
	config OpenAIConfig
	http   *http.Client
	// newTokenLimit: the API's own servers, and what calls itself like their reasoning models, take max_completion_tokens.
	// Others know max_tokens only.
	newTokenLimit bool
}

// NewOpenAI connects to nothing yet: also the key is loaded at the first call.
func NewOpenAI(c OpenAIConfig) *OpenAI {
	c.BaseURL = cmp.Or(c.BaseURL, DefaultOpenAIURL)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	base, err := url.Parse(c.BaseURL)
	own := err == nil && base.Hostname() == "api.openai.com"
	probe := openai.NewReasoningValidator().Validate(openai.ChatCompletionRequest{Model: c.Model, MaxTokens: 1}) //nolint:staticcheck // asks who refuses it
	return &OpenAI{config: c, http: awsclient.HTTPClient(0), newTokenLimit: own || errors.Is(probe, openai.ErrReasoningModelMaxTokensDeprecated)}
}

// Complete implements [chat.Model].
func (m *OpenAI) Complete(ctx context.Context, r chat.Request) (chat.Response, error) {
	calling, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	key, err := m.config.Key.get(ctx)
	if err != nil {
		return chat.Response{}, err
	}
	out, ex, err := m.send(calling, key, r)
	if ex.status == http.StatusUnauthorized {
		// A key that has been rotated since it was loaded is replaced. Whoever refuses a key has done nothing else.
		if renewed, ok := m.config.Key.renew(calling, key); ok {
			key = renewed
			out, ex, err = m.send(calling, key, r)
		}
	}
	if err != nil {
		return chat.Response{}, ex.failure(ctx, err, m.config.Key.redact)
	}
	return m.response(r, out)
}

func (m *OpenAI) send(ctx context.Context, key string, r chat.Request) (openai.ChatCompletionResponse, *exchange, error) {
	ex := &exchange{http: m.http, effectKey: headerKey(r.EffectKey)}
	config := openai.DefaultConfig(key)
	config.BaseURL = m.config.BaseURL
	config.HTTPClient = ex
	out, err := openai.NewClientWithConfig(config).CreateChatCompletion(ctx, m.request(r))
	return out, ex, err
}

func (m *OpenAI) request(r chat.Request) openai.ChatCompletionRequest {
	out := openai.ChatCompletionRequest{Model: m.config.Model}
	if m.newTokenLimit {
		out.MaxCompletionTokens = r.MaxTokens
	} else {
		out.MaxTokens = r.MaxTokens //nolint:staticcheck // what servers other than OpenAI's understand
	}
	if r.System != "" {
		out.Messages = append(out.Messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleSystem, Content: r.System})
	}
	for _, message := range r.Messages {
		o := openai.ChatCompletionMessage{Role: string(message.Role), Content: message.Text, ToolCallID: message.ToolCallID}
		switch {
		case message.Role == chat.RoleTool && message.ToolError:
			o.Content = "Error: " + message.Text
		case message.Role == chat.RoleTool:
			o.Content = cmp.Or(message.Text, noOutput)
		}
		for _, call := range message.ToolCalls {
			o.ToolCalls = append(o.ToolCalls, openai.ToolCall{
				ID: call.ID, Type: openai.ToolTypeFunction,
				Function: openai.FunctionCall{Name: call.Name, Arguments: arguments(call.Input)},
			})
		}
		out.Messages = append(out.Messages, o)
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: t.Schema,
		}})
	}
	return out
}

func (m *OpenAI) response(r chat.Request, in openai.ChatCompletionResponse) (chat.Response, error) {
	if len(in.Choices) == 0 {
		return chat.Response{}, service.Fail(upstream.BadAnswer, "it has no choices")
	}
	choice := in.Choices[0]
	out := chat.Response{
		Text:  choice.Message.Content,
		Model: "openai:" + m.config.Model,
		Stop:  chat.StopEnd,
		Usage: chat.Usage{InputTokens: in.Usage.PromptTokens, OutputTokens: in.Usage.CompletionTokens},
	}
	for i, call := range choice.Message.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, chat.ToolCall{
			// Some servers leave the id out.
			ID:    cmp.Or(call.ID, fmt.Sprintf("call_%d_%d", len(r.Messages), i)),
			Name:  call.Function.Name,
			Input: input(call.Function.Arguments),
		})
	}
	switch {
	case choice.Message.Refusal != "":
		return chat.Response{}, service.Fail(upstream.Refused, choice.Message.Refusal)
	case choice.FinishReason == openai.FinishReasonContentFilter:
		return chat.Response{}, service.Fail(upstream.Refused, "the content filter has stopped it")
	case choice.FinishReason == openai.FinishReasonLength:
		out.Stop = chat.StopLength
	}
	return checked(out)
}

// exchange is one request and its answer, beneath the client: what the client does not show is kept here.
type exchange struct {
	http      *http.Client
	effectKey string

	sent   bool
	status int // 0: there was no answer
	header http.Header
	broken bool // the answer, in the middle
}

// Do sends the request.
func (e *exchange) Do(r *http.Request) (*http.Response, error) {
	e.sent = true
	if e.effectKey != "" {
		r.Header.Set("Idempotency-Key", e.effectKey)
	}
	// Without it the transport would repeat the request by itself, unseen, when a connection drops: it does so for whatever
	// carries an Idempotency-Key.
	r.GetBody = nil
	answer, err := e.http.Do(r) //nolint:gosec // the address is the one that is set up
	if err != nil {
		return nil, err
	}
	e.status, e.header = answer.StatusCode, answer.Header
	answer.Body = &watched{ReadCloser: answer.Body, left: maxAnswerBytes, broken: &e.broken}
	return answer, nil
}

// watched notes that a body broke off, and ends one that is too long.
type watched struct {
	io.ReadCloser
	left   int
	broken *bool
}

func (w *watched) Read(p []byte) (int, error) {
	if w.left <= 0 {
		return 0, io.EOF
	}
	n, err := w.ReadCloser.Read(p[:min(len(p), w.left)])
	w.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		*w.broken = true
	}
	return n, err
}

// failure is what becomes of an exchange without a usable answer. The server may repeat the key in its words.
func (e *exchange) failure(ctx context.Context, err error, redact func(string) string) error {
	var api *openai.APIError
	switch {
	case ctx.Err() != nil:
		return service.Transport(ctx, err)
	case !e.sent && !errors.Is(err, context.DeadlineExceeded):
		return service.Fail(upstream.Invalid, err.Error()) // the client knows the model's limits
	case e.status == 0 || e.broken:
		return service.Transport(ctx, err)
	case e.status < http.StatusMultipleChoices:
		return service.Fail(upstream.BadAnswer, "it is not what the API promises")
	case errors.As(err, &api):
		return service.HTTP(apiKind(api), e.header, redact(api.Message))
	}
	return service.HTTP(upstream.Status(e.status), e.header, fmt.Sprintf("HTTP status %d", e.status))
}

// apiKind is the kind of failure that the API's error stands for.
// Source: OpenAI API documentation, "Error codes".
func apiKind(e *openai.APIError) upstream.Kind {
	code, _ := e.Code.(string)
	switch {
	case code == "insufficient_quota" || e.Type == "insufficient_quota":
		return upstream.Quota
	case code == "context_length_exceeded":
		return upstream.TooLong
	case code == "content_filter" || code == "content_policy_violation":
		return upstream.Refused
	}
	kind := upstream.Status(e.HTTPStatusCode)
	if kind == upstream.Invalid && upstream.IsTooLong(e.Message) {
		return upstream.TooLong
	}
	return kind
}
