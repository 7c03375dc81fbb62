package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"agentworker/internal/agent/chat"
	"agentworker/internal/task"
)

// Tool is something that the model of an [AgentRun] task may call.
type Tool struct {
	Name        string // letters, digits, _ and -, at most 64
	Description string // for the model: when to call it and what it gives
	// Schema is the JSON schema of the input, which is an object: draft 2020-12 or 7. It stands by itself: nothing is fetched.
	// Run is called only with what fits it.
	Schema jsontext.Value
	// Run does the work. What it gives is encoded as JSON and handed to the model. An error marked by [task.Permanent] goes
	// to the model too, which may call differently then; any other fails the attempt, and the call is made
	// again at the next one under the same effect key. A call whose outcome is committed is never made again.
	Run func(ctx context.Context, call ToolCall) (any, error)
}

// ToolCall is one call of a [Tool].
type ToolCall struct {
	// Input fits the tool's schema, byte for byte as the model wrote it.
	Input jsontext.Value
	// Effects gives the key for calls to the outside, and changes a ticket in the same transaction that
	// commits the call's outcome.
	Effects *task.Effects
}

// Decode reads the call's input into a struct. Names are case-sensitive.
func (c ToolCall) Decode(into any) error {
	if err := json.Unmarshal(c.Input, into); err != nil {
		return task.Permanent(fmt.Errorf("the input cannot be read: %w", err))
	}
	return nil
}

// Toolbox is a list of tools. It is immutable and safe for concurrent use.
type Toolbox struct {
	tools   []Tool
	schemas map[string]func() (*jsonschema.Resolved, error) // read when first used
}

const maxToolName = 64

func isToolName(s string) bool {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	return s != "" && len(s) <= maxToolName && !strings.ContainsFunc(s, other)
}

// NewToolbox refuses tools without a name, a schema or a Run, and two of one name.
func NewToolbox(tools ...Tool) (*Toolbox, error) {
	b := &Toolbox{tools: slices.Clone(tools), schemas: map[string]func() (*jsonschema.Resolved, error){}}
	for _, t := range tools {
		switch {
		case !isToolName(t.Name):
			return nil, fmt.Errorf("tool %q: its name must be 1 to 64 letters, digits, _ or -", t.Name)
		case b.schemas[t.Name] != nil:
			return nil, fmt.Errorf("tool %q is registered twice", t.Name)
		case t.Run == nil || t.Schema.Kind() != '{' || !t.Schema.IsValid():
			return nil, fmt.Errorf("tool %q needs a Run, and a schema that is a JSON object", t.Name)
		}
		b.schemas[t.Name] = sync.OnceValues(func() (*jsonschema.Resolved, error) { return readSchema(t) })
	}
	return b, nil
}

// Check reads every schema, for tests: what is wrong with one shows otherwise at its first call.
func (b *Toolbox) Check() error {
	for _, t := range b.tools {
		if _, err := b.schemas[t.Name](); err != nil {
			return err
		}
	}
	return nil
}

// offered is what the model is told of the tools.
func (b *Toolbox) offered() []chat.Tool {
	var offered []chat.Tool
	for _, t := range b.tools {
		offered = append(offered, chat.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	return offered
}

func (b *Toolbox) find(name string) (Tool, bool) {
	i := slices.IndexFunc(b.tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return b.tools[i], true
}

// call checks a call and makes it. Its error is for the model when it is permanent, and else the attempt's.
func (b *Toolbox) call(ctx context.Context, name string, call ToolCall) (jsontext.Value, error) {
	tool, known := b.find(name)
	if !known {
		return nil, task.Permanent(fmt.Errorf("there is no tool of this name; there are: %s", strings.Join(b.names(), ", ")))
	}
	schema, err := b.schemas[name]()
	if err != nil {
		return nil, err
	}
	if err := checkInput(schema, call.Input); err != nil {
		return nil, task.Permanent(err)
	}
	out, err := tool.Run(ctx, call)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(out, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("encode the outcome of tool %s: %w", name, err)
	}
	return content, nil
}

func (b *Toolbox) names() []string {
	names := make([]string, 0, len(b.tools))
	for _, t := range b.tools {
		names = append(names, t.Name)
	}
	return names
}

func readSchema(t Tool) (*jsonschema.Resolved, error) {
	var schema jsonschema.Schema
	if err := json.Unmarshal(t.Schema, &schema); err != nil {
		return nil, fmt.Errorf("schema of tool %s: %w", t.Name, err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("schema of tool %s: %w", t.Name, err)
	}
	return resolved, nil
}

// checkInput says what is wrong with an input first of all, in words for the model.
func checkInput(schema *jsonschema.Resolved, input jsontext.Value) error {
	// Stricter than the schema's own reading, which takes names that come twice.
	if !input.IsValid() {
		return errors.New("the input is not valid JSON (names must be unique)")
	}
	var value any // only looked at: the tool decodes the input itself
	if err := json.Unmarshal(input, &value); err != nil {
		return errors.New("the input is not valid JSON")
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("the input does not fit the tool's schema: %w", err)
	}
	return nil
}
