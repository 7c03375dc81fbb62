package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

func nothing(context.Context, agent.ToolCall) (any, error) { return nil, nil }

func TestToolbox(t *testing.T) {
	t.Parallel()
	object := jsontext.Value(`{"type":"object"}`)
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, object, 0o600); err != nil {
		t.Fatal(err)
	}
	tool := func(name string, schema jsontext.Value) agent.Tool {
		return agent.Tool{Name: name, Schema: schema, Run: nothing}
	}
	tests := map[string]struct {
		tools []agent.Tool
		want  string // of the error; empty: none
	}{
		"none":               {nil, ""},
		"one":                {[]agent.Tool{tool("look_up-2", object)}, ""},
		"no name":            {[]agent.Tool{tool("", object)}, "its name must be"},
		"name with a blank":  {[]agent.Tool{tool("look up", object)}, "its name must be"},
		"name too long":      {[]agent.Tool{tool(strings.Repeat("x", 65), object)}, "its name must be"},
		"twice":              {[]agent.Tool{tool("a", object), tool("a", object)}, "registered twice"},
		"no schema":          {[]agent.Tool{tool("a", nil)}, "needs a Run, and a schema"},
		"schema not JSON":    {[]agent.Tool{tool("a", jsontext.Value(`{"type":`))}, "needs a Run, and a schema"},
		"no run":             {[]agent.Tool{{Name: "a", Schema: object}}, "needs a Run, and a schema"},
		"schema not sound":   {[]agent.Tool{tool("a", jsontext.Value(`{"properties":{"a":{"pattern":"("}}}`))}, "schema of tool a"},
		"schema from abroad": {[]agent.Tool{tool("a", jsontext.Value(`{"$ref":"file://`+filepath.ToSlash(file)+`"}`))}, "schema of tool a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box, err := agent.NewToolbox(tt.tools...)
			if err == nil {
				err = box.Check()
			}
			if got := text(err); (tt.want == "") != (err == nil) || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBuiltinToolsAreSound(t *testing.T) {
	t.Parallel()
	box, err := agent.NewToolbox(agent.BuiltinTools(agent.Config{})...)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Check(); err != nil {
		t.Error(err)
	}
}

// A tool of one's own gets the step's key, and what it did to a ticket counts only when it succeeds.
func TestAToolOfOnesOwn(t *testing.T) {
	t.Parallel()
	var keys []string
	fails := true
	book := agent.Tool{
		Name: "book", Schema: jsontext.Value(`{"type":"object","properties":{"seats":{"type":"integer"}},"required":["seats"]}`),
		Run: func(_ context.Context, call agent.ToolCall) (any, error) {
			keys = append(keys, call.Effects.Key())
			call.Effects.SetTicket(task.Ticket{ID: "TK-1", Status: "open", Version: 1})
			call.Effects.UseTokens(5, 2)
			if fails {
				fails = false
				return nil, task.Failf("SOLD_OUT", "no seats are left")
			}
			return call.Input, nil
		},
	}
	m := &scripted{says: []chat.Response{calls(`book {"seats":12345678901234567890}`), calls(`book { "seats":2 }`), answers("Booked.")}}
	c, _ := agentConfig(m)
	box, err := agent.NewToolbox(book)
	if err != nil {
		t.Fatal(err)
	}
	c.Tools = box
	msg := agentMessage(t, c, `"question":"q"`)
	run := tasktest.NewRun(msg.ID)
	if _, err := execute(t, c, run, msg); err != nil {
		t.Fatal(err)
	}
	if want := string(msg.ID) + "/tool-1-1-book"; len(keys) != 2 || keys[0] != want || keys[1] == want {
		t.Errorf("keys: got %q, want %q and another", keys, want)
	}
	if len(run.Tickets()) != 1 {
		t.Errorf("ticket changes: got %v, want that of the second call only", run.Tickets())
	}
	heard := m.requests[2].Messages
	if first, second := heard[2], heard[4]; !first.ToolError || first.Text != "no seats are left" || second.ToolError || second.Text != `{"seats":2}` {
		t.Errorf("the model heard %+v and %+v", first, second)
	}
	if got, want := run.Tokens(), (task.Tokens{Input: 310, Output: 34}); got != want {
		t.Errorf("tokens: got %+v, want %+v, the tools' included", got, want)
	}
}
