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
	"slices"
	"time"

	"github.com/go-json-experiment/json"
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
	if err != nil || len(out.Choices) == 0 {
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
	choice := in.Choices[0]
	out := chat.Response{
		Text:  choice.Message.Content,
		Model: "openai:" + m.config.Model,
		Stop:  chat.StopEnd,
		Usage: chat.Usage{InputTokens: in.Usage.PromptTokens, OutputTokens: in.Usage.CompletionTokens},
	}
	for _, part := range choice.Message.MultiContent { // from models that think aloud; their thoughts are parts of another type
		out.Text += part.Text
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
	case slices.Contains(brokenOff, choice.FinishReason):
		return chat.Response{}, service.Fail(upstream.Unavailable, "it broke off in the middle")
	case choice.FinishReason == openai.FinishReasonLength:
		out.Stop = chat.StopLength
	}
	return checked(out)
}

// brokenOff are the reasons by which servers say, with status 200, that they did not get to the answer's end. Names that are
// not known are no failure: older servers have "eos_token".
// Source: DeepSeek API documentation, "Create chat completion"; OpenRouter documentation, "Errors"; vLLM and SGLang.
var brokenOff = []openai.FinishReason{"insufficient_system_resource", "error", "abort"}

// exchange is one request and its answer, beneath the client: what the client does not show is kept here.
type exchange struct {
	http      *http.Client
	effectKey string

	sent   bool
	status int // 0: there was no answer
	header http.Header
	broken bool   // the answer, in the middle
	body   []byte // its beginning, up to maxErrorBytes
}

// maxErrorBytes bounds what is read again of an answer that is an error.
const maxErrorBytes = 16 << 10

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
	answer.Body = &watched{ReadCloser: answer.Body, left: maxAnswerBytes, exchange: e}
	return answer, nil
}

// watched notes how a body begins and that it broke off, and ends one that is too long.
type watched struct {
	io.ReadCloser
	left     int
	exchange *exchange
}

func (w *watched) Read(p []byte) (int, error) {
	if w.left <= 0 {
		return 0, io.EOF
	}
	n, err := w.ReadCloser.Read(p[:min(len(p), w.left)])
	w.left -= n
	w.exchange.body = append(w.exchange.body, p[:min(n, maxErrorBytes-len(w.exchange.body))]...)
	if err != nil && !errors.Is(err, io.EOF) {
		w.exchange.broken = true
	}
	return n, err
}

// failure is what becomes of an exchange without a usable answer. The server may repeat the key in its words.
func (e *exchange) failure(ctx context.Context, err error, redact func(string) string) error {
	var api *openai.APIError
	switch {
	case err != nil && ctx.Err() != nil:
		return service.Transport(ctx, err)
	case !e.sent && !errors.Is(err, context.DeadlineExceeded):
		return service.Fail(upstream.Invalid, err.Error()) // the client knows the model's limits
	case e.status == 0 || e.broken:
		return service.Transport(ctx, err)
	case errors.As(err, &api) && api.HTTPStatusCode != 0: // 0: the client could not read all of it
		return service.HTTP(apiKind(api), e.header, redact(api.Message))
	}
	said := e.said()
	switch {
	case said.HTTPStatusCode < http.StatusMultipleChoices:
		return service.Fail(upstream.BadAnswer, cmp.Or(redact(said.Message), "it is not what the API promises"))
	case said.Message == "":
		return service.HTTP(upstream.Status(e.status), e.header, fmt.Sprintf("HTTP status %d", e.status))
	}
	return service.HTTP(apiKind(said), e.header, redact(said.Message))
}

// said is what an answer says went wrong, in the forms that other servers than OpenAI's give it: {"message"} by older vLLM,
// {"error": "…"} by text-generation-inference, {"detail"} by FastAPI. Some say it with status 200, and with the status
// that they mean as its code.
func (e *exchange) said() *openai.APIError {
	api := &openai.APIError{HTTPStatusCode: e.status}
	var in map[string]any
	if json.Unmarshal(e.body, &in) != nil {
		return api
	}
	if inner, ok := in["error"].(map[string]any); ok {
		in = inner
	}
	for _, name := range []string{"message", "error", "detail"} {
		if words, ok := in[name].(string); ok && api.Message == "" {
			api.Message = words
		}
	}
	api.Code = in["code"]
	api.Type, _ = in["type"].(string)
	if status, ok := api.Code.(float64); ok && api.Message != "" && e.status < http.StatusMultipleChoices && status >= http.StatusMultipleChoices && status < 600 {
		api.HTTPStatusCode = int(status)
	}
	return api
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
