package modeltest

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent/chat"
)

// bedrockRequest holds what the API takes from us; it refuses members that it does not know.
// Source: Amazon Bedrock API Reference, "Converse".
type bedrockRequest struct {
	System          []bedrockText    `json:"system"`
	Messages        []bedrockMessage `json:"messages"`
	InferenceConfig struct {
		MaxTokens int `json:"maxTokens"`
	} `json:"inferenceConfig"`
	ToolConfig *struct {
		Tools []bedrockTool `json:"tools"`
	} `json:"toolConfig"`
	RequestMetadata map[string]string `json:"requestMetadata"`
}

type bedrockText struct {
	Text string `json:"text"`
}

type bedrockMessage struct {
	Role    string         `json:"role"`
	Content []bedrockBlock `json:"content"`
}

// bedrockBlock has one of its members.
type bedrockBlock struct {
	Text       *string            `json:"text,omitzero"`
	ToolUse    *bedrockToolUse    `json:"toolUse,omitzero"`
	ToolResult *bedrockToolResult `json:"toolResult,omitzero"`
}

type bedrockToolUse struct {
	ToolUseID string         `json:"toolUseId"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
}

type bedrockToolResult struct {
	ToolUseID string        `json:"toolUseId"`
	Content   []bedrockText `json:"content"`
	Status    string        `json:"status,omitempty"`
}

type bedrockTool struct {
	ToolSpec struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		InputSchema struct {
			JSON jsontext.Value `json:"json"`
		} `json:"inputSchema"`
	} `json:"toolSpec"`
}

type bedrockResponse struct {
	Output struct {
		Message bedrockMessage `json:"message"`
	} `json:"output"`
	StopReason string `json:"stopReason"`
	Usage      struct {
		InputTokens  int `json:"inputTokens"`
		OutputTokens int `json:"outputTokens"`
		TotalTokens  int `json:"totalTokens"`
	} `json:"usage"`
	Metrics struct {
		LatencyMs int `json:"latencyMs"`
	} `json:"metrics"`
}

func (s *Server) serveBedrock(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c := Call{Protocol: Bedrock, Model: r.PathValue("model"), Authorization: r.Header.Get("Authorization")}
	var in bedrockRequest
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil {
		c.Problem = "The request body is not valid: " + err.Error()
	} else {
		c.EffectKey, c.Request, c.Problem = in.RequestMetadata["effect_key"], in.request(), in.problem()
	}
	c.Request.EffectKey = c.EffectKey

	reply := s.record(c)
	if !strings.HasPrefix(c.Authorization, "AWS4-HMAC-SHA256 ") {
		reply = Deny("Missing Authentication Token")
	}
	if !reply.wait(r.Context()) {
		return
	}
	w.Header().Set("X-Amzn-Requestid", "00000000-0000-0000-0000-000000000001")
	switch reply.kind {
	case throttled:
		if reply.after > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(reply.after.Seconds())))
		}
		bedrockError(w, reply, http.StatusTooManyRequests, "ThrottlingException", "Too many requests, please wait before trying again.")
	case failed:
		bedrockError(w, reply, reply.code, errorType(reply.code), reply.said)
	default:
		reply.send(w, http.StatusOK, reply.bedrock(body))
	}
}

// errorType is the exception that the API gives with an HTTP status.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "ValidationException"
	case http.StatusUnauthorized, http.StatusForbidden:
		return "AccessDeniedException"
	case http.StatusNotFound:
		return "ResourceNotFoundException"
	case http.StatusRequestTimeout:
		return "ModelTimeoutException"
	case http.StatusFailedDependency:
		return "ModelErrorException"
	case http.StatusTooManyRequests:
		return "ModelNotReadyException"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	}
	return "InternalServerException"
}

func bedrockError(w http.ResponseWriter, r Reply, status int, name, message string) {
	w.Header().Set("X-Amzn-Errortype", name+":http://internal.amazon.com/coral/com.amazon.bedrock/")
	r.send(w, status, marshal(struct {
		Message string `json:"message"`
	}{message}))
}

func (r Reply) bedrock(request []byte) []byte {
	var out bedrockResponse
	out.StopReason = "end_turn"
	switch r.kind {
	case length:
		out.StopReason = "max_tokens"
	case filtered, declined:
		out.StopReason = "content_filtered"
	}
	content := []bedrockBlock{}
	if text := r.text + r.said; text != "" {
		content = append(content, bedrockBlock{Text: &text})
	}
	for _, c := range r.calls {
		if r.kind != length {
			out.StopReason = "tool_use"
		}
		if c.Input.Kind() != '{' || !c.Input.IsValid() {
			out.StopReason = "malformed_tool_use"
			break
		}
		content = append(content, bedrockBlock{ToolUse: &bedrockToolUse{ToolUseID: c.ID, Name: c.Name, Input: c.Input}})
	}
	u := r.used(request)
	out.Output.Message = bedrockMessage{Role: "assistant", Content: content}
	out.Usage.InputTokens, out.Usage.OutputTokens, out.Usage.TotalTokens = u.InputTokens, u.OutputTokens, u.InputTokens+u.OutputTokens
	return marshal(out)
}

func (in bedrockRequest) request() chat.Request {
	r := chat.Request{MaxTokens: in.InferenceConfig.MaxTokens}
	for _, s := range in.System {
		r.System += s.Text
	}
	for _, m := range in.Messages {
		message := chat.Message{Role: chat.Role(m.Role)}
		spoken := false
		for _, b := range m.Content {
			switch {
			case b.ToolResult != nil:
				result := chat.Message{Role: chat.RoleTool, ToolCallID: b.ToolResult.ToolUseID, ToolError: b.ToolResult.Status == "error"}
				for _, c := range b.ToolResult.Content {
					result.Text += c.Text
				}
				r.Messages = append(r.Messages, result)
			case b.ToolUse != nil:
				message.ToolCalls = append(message.ToolCalls, chat.ToolCall{ID: b.ToolUse.ToolUseID, Name: b.ToolUse.Name, Input: b.ToolUse.Input})
				spoken = true
			case b.Text != nil:
				message.Text += *b.Text
				spoken = true
			}
		}
		if spoken {
			r.Messages = append(r.Messages, message)
		}
	}
	if in.ToolConfig != nil {
		for _, t := range in.ToolConfig.Tools {
			r.Tools = append(r.Tools, chat.Tool{Name: t.ToolSpec.Name, Description: t.ToolSpec.Description, Schema: t.ToolSpec.InputSchema.JSON})
		}
	}
	return r
}

var (
	bedrockID       = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{1,64}$`)
	bedrockMetadata = regexp.MustCompile(`^[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}$`)
)

// problem is what the API would say to a request that breaks its rules.
func (in bedrockRequest) problem() string {
	role := "assistant"
	for _, m := range in.Messages {
		if m.Role == role {
			return "A conversation must alternate between user and assistant roles, and start with a user message. Try again."
		}
		role = m.Role
		if len(m.Content) == 0 {
			return "The content field in the Message object is empty. Add a ContentBlock object to the content field and try again."
		}
		for _, b := range m.Content {
			if p := b.problem(in.ToolConfig != nil, m.Role); p != "" {
				return p
			}
		}
	}
	if len(in.Messages) > 0 && in.Messages[len(in.Messages)-1].Role != "user" {
		return "This model does not support assistant message prefill. The conversation must end with a user message."
	}
	for _, s := range in.System {
		if strings.TrimSpace(s.Text) == "" {
			return "The text field in the SystemContentBlock object is blank. Add text to the text field, and try again."
		}
	}
	if in.ToolConfig != nil && len(in.ToolConfig.Tools) == 0 {
		return "Value at 'toolConfig.tools' failed to satisfy constraint: Member must have length greater than or equal to 1"
	}
	for k, v := range in.RequestMetadata {
		if !bedrockMetadata.MatchString(k) || !bedrockMetadata.MatchString(v) {
			return "Value at 'requestMetadata' failed to satisfy constraint"
		}
	}
	return problem(in.request(), "Expected toolResult blocks for the toolUse blocks of the previous turn.",
		"The toolResult blocks exceed the toolUse blocks of the previous turn.")
}

func (b bedrockBlock) problem(tools bool, role string) string {
	switch {
	case b.Text != nil:
		if strings.TrimSpace(*b.Text) == "" {
			return "The text field in the ContentBlock object is blank. Add text to the text field, and try again."
		}
		return ""
	case !tools:
		return "The toolConfig field must be defined when using toolUse and toolResult content blocks."
	case b.ToolUse != nil:
		if role != "assistant" || !bedrockID.MatchString(b.ToolUse.ToolUseID) {
			return "toolUse block with a wrong role or toolUseId"
		}
		if b.ToolUse.Input.Kind() != '{' {
			return "The format of the value at toolUse.input is invalid. Provide a json object for the field and try again."
		}
	case b.ToolResult != nil:
		if role != "user" || !bedrockID.MatchString(b.ToolResult.ToolUseID) || b.ToolResult.Status != "" && b.ToolResult.Status != "success" && b.ToolResult.Status != "error" {
			return "toolResult block with a wrong role, toolUseId or status"
		}
		if len(b.ToolResult.Content) == 0 {
			return "toolResult.content is empty"
		}
		for _, c := range b.ToolResult.Content {
			if strings.TrimSpace(c.Text) == "" {
				return "The text field in the ContentBlock object is blank. Add text to the text field, and try again."
			}
		}
	}
	return ""
}
