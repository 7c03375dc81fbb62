//go:build !slim || bedrock

package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	smithydocument "github.com/aws/smithy-go/document"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/upstream"
	"agentworker/internal/awsclient"
)

// BedrockConfig says which model of Amazon Bedrock is asked.
type BedrockConfig struct {
	Model   string     // the id or ARN of a model or an inference profile
	AWS     aws.Config // with the function's region and role
	Timeout time.Duration
}

// Bedrock is a model behind Amazon Bedrock's Converse API. It makes one request a call, without retries. It is safe for
// concurrent use.
type Bedrock struct {
	config BedrockConfig
	client func() *bedrockruntime.Client
}

// NewBedrock makes the client at the first call.
func NewBedrock(c BedrockConfig) *Bedrock {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	return &Bedrock{config: c, client: sync.OnceValue(func() *bedrockruntime.Client {
		return bedrockruntime.NewFromConfig(c.AWS, func(o *bedrockruntime.Options) {
			o.Retryer = aws.NopRetryer{}
			// A model thinks for longer than other AWS calls may take to answer.
			o.HTTPClient = awsclient.Waiting(c.AWS.HTTPClient, 0)
		})
	})}
}

// Complete implements [chat.Model].
func (m *Bedrock) Complete(ctx context.Context, r chat.Request) (chat.Response, error) {
	in, err := m.request(r)
	if err != nil {
		return chat.Response{}, service.Fail(upstream.Invalid, err.Error())
	}
	calling, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	out, err := m.client().Converse(calling, in)
	if err != nil {
		return chat.Response{}, service.AWS(ctx, err)
	}
	return m.response(out)
}

func (m *Bedrock) request(r chat.Request) (*bedrockruntime.ConverseInput, error) {
	in := &bedrockruntime.ConverseInput{ModelId: &m.config.Model}
	if r.System != "" {
		in.System = []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: r.System}}
	}
	if r.MaxTokens > 0 {
		in.InferenceConfig = &types.InferenceConfiguration{MaxTokens: aws.Int32(int32(min(r.MaxTokens, 1<<30)))}
	}
	if key := headerKey(r.EffectKey); key != "" {
		in.RequestMetadata = map[string]string{"effect_key": key}
	}
	for _, message := range r.Messages {
		role, blocks, err := converse(message)
		if err != nil {
			return nil, err
		}
		// The API wants the roles to take turns: what stands together goes into one message.
		if last := len(in.Messages) - 1; last >= 0 && in.Messages[last].Role == role {
			in.Messages[last].Content = append(in.Messages[last].Content, blocks...)
			continue
		}
		in.Messages = append(in.Messages, types.Message{Role: role, Content: blocks})
	}
	if len(r.Tools) > 0 {
		in.ToolConfig = &types.ToolConfiguration{}
	}
	for _, t := range r.Tools {
		schema, err := lazy(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("the schema of tool %s: %w", t.Name, err)
		}
		spec := types.ToolSpecification{Name: &t.Name, InputSchema: &types.ToolInputSchemaMemberJson{Value: schema}}
		if t.Description != "" {
			spec.Description = &t.Description
		}
		in.ToolConfig.Tools = append(in.ToolConfig.Tools, &types.ToolMemberToolSpec{Value: spec})
	}
	return in, nil
}

// converse puts a message into Converse's form. The API takes no blank text.
func converse(message chat.Message) (types.ConversationRole, []types.ContentBlock, error) {
	var blocks []types.ContentBlock
	if message.Role == chat.RoleTool {
		result := types.ToolResultBlock{ToolUseId: &message.ToolCallID, Content: []types.ToolResultContentBlock{
			&types.ToolResultContentBlockMemberText{Value: unblank(message.Text)},
		}}
		if message.ToolError {
			result.Status = types.ToolResultStatusError
		}
		return types.ConversationRoleUser, append(blocks, &types.ContentBlockMemberToolResult{Value: result}), nil
	}
	if strings.TrimSpace(message.Text) != "" || len(message.ToolCalls) == 0 {
		blocks = append(blocks, &types.ContentBlockMemberText{Value: unblank(message.Text)})
	}
	for _, call := range message.ToolCalls {
		raw := call.Input
		if raw.Kind() != '{' {
			// Whatever another provider's model wrote there: Converse has objects only.
			raw = jsontext.Value(`{"input":` + string(raw) + `}`)
		}
		object, err := lazy(raw)
		if err != nil {
			return "", nil, fmt.Errorf("the input of a call of %s: %w", call.Name, err)
		}
		blocks = append(blocks, &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{
			ToolUseId: &call.ID, Name: &call.Name, Input: object,
		}})
	}
	return types.ConversationRole(message.Role), blocks, nil
}

func unblank(s string) string {
	if strings.TrimSpace(s) == "" {
		return noOutput
	}
	return s
}

func (m *Bedrock) response(in *bedrockruntime.ConverseOutput) (chat.Response, error) {
	out := chat.Response{Model: "bedrock:" + m.config.Model, Stop: chat.StopEnd}
	if in.Usage != nil {
		out.Usage = chat.Usage{InputTokens: int(aws.ToInt32(in.Usage.InputTokens)), OutputTokens: int(aws.ToInt32(in.Usage.OutputTokens))}
	}
	message, ok := in.Output.(*types.ConverseOutputMemberMessage)
	if !ok {
		return chat.Response{}, service.Fail(upstream.BadAnswer, "it has no message")
	}
	for i, block := range message.Value.Content {
		// For a block of a kind that it does not know the SDK (bedrockruntime 1.63.13) gives the one before it again, the same pointer.
		if i > 0 && block == message.Value.Content[i-1] {
			continue
		}
		switch b := block.(type) {
		case *types.ContentBlockMemberText:
			out.Text += b.Value
		case *types.ContentBlockMemberToolUse:
			call := chat.ToolCall{ID: aws.ToString(b.Value.ToolUseId), Name: aws.ToString(b.Value.Name), Input: jsontext.Value("{}")}
			if b.Value.Input != nil {
				raw, err := b.Value.Input.MarshalSmithyDocument()
				if err != nil {
					return chat.Response{}, service.Fail(upstream.BadAnswer, "the input of a tool cannot be read")
				}
				call.Input = input(string(raw))
			}
			out.ToolCalls = append(out.ToolCalls, call)
		}
	}
	switch in.StopReason {
	case types.StopReasonContentFiltered, types.StopReasonGuardrailIntervened:
		return chat.Response{}, service.Fail(upstream.Refused, cmp.Or(out.Text, "the content filter has stopped it"))
	case types.StopReasonMalformedModelOutput, types.StopReasonMalformedToolUse:
		return chat.Response{}, service.Fail(upstream.BadAnswer, "the model did not keep to its own form")
	case types.StopReasonMaxTokens:
		out.Stop = chat.StopLength
	case types.StopReasonModelContextWindowExceeded:
		if strings.TrimSpace(out.Text) == "" {
			return chat.Response{}, service.Fail(upstream.TooLong, "nothing is left for the answer")
		}
		out.Stop = chat.StopLength
	}
	return checked(out)
}

// lazy is a JSON value as the SDK sends it, with numbers of any size. The SDK itself would send an unusable one as nothing.
func lazy(raw jsontext.Value) (document.Interface, error) {
	var v any
	if err := json.Unmarshal(raw, &v, json.WithUnmarshalers(json.UnmarshalFromFunc(number))); err != nil {
		return nil, err
	}
	return document.NewLazyDocument(v), nil
}

// number keeps a number's digits.
func number(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	*v = smithydocument.Number(raw)
	return nil
}
