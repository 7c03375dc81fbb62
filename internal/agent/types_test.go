package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/task"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestFieldsAreChecked(t *testing.T) {
	t.Parallel()
	question := func(q string) string {
		raw, _ := json.Marshal(map[string]string{"question": q})
		return string(raw)
	}
	tests := map[string]struct {
		task, fields string
		want         string // empty: accepted
	}{
		"question":                  {"rag_query", `{"question":"什么是 LangGraph？"}`, ""},
		"unknown fields":            {"rag_query", `{"question":"q","top_k":1e400,"x":[null]}`, ""},
		"question of full length":   {"rag_query", question(strings.Repeat("界", 66_666) + "!!"), ""},
		"question too long":         {"rag_query", question(strings.Repeat("界", 66_667)), "question must be at most 200000 bytes long, not 200001"},
		"question empty":            {"rag_query", `{"question":""}`, "question must not be empty"},
		"question missing":          {"rag_query", `{}`, "question must not be empty"},
		"question null":             {"rag_query", `{"question":null}`, "question must not be empty"},
		"question blank":            {"rag_query", question(" \t\n\u3000\u200b\ufeff"), "question must not be only white space"},
		"question of another case":  {"rag_query", `{"Question":"q"}`, "question must not be empty"},
		"question a number":         {"rag_query", `{"question":5}`, "question must be a string"},
		"agent":                     {"agent_run", `{"question":"q","max_steps":30}`, ""},
		"agent without limit":       {"agent_run", `{"question":"q","max_steps":null}`, ""},
		"agent without fields":      {"agent_run", `{"max_steps":0}`, "question must not be empty; max_steps must be a whole number from 1 to 30"},
		"agent with too many steps": {"agent_run", `{"question":"q","max_steps":31}`, "max_steps must be a whole number from 1 to 30"},
		"ticket":                    {"update_ticket", `{"ticket_id":"TK-1001","status":"closed"}`, ""},
		"ticket with version":       {"update_ticket", `{"ticket_id":"TK-1001","status":"open","expected_version":0}`, ""},
		"ticket with null version":  {"update_ticket", `{"ticket_id":"TK-1001","status":"open","expected_version":null,"x":1}`, ""},
		"ticket without fields":     {"update_ticket", `{}`, "ticket_id must not be empty; status must be one of open, in_progress, resolved, closed"},
		"ticket id too long":        {"update_ticket", `{"ticket_id":"` + strings.Repeat("x", 94) + `","status":"open"}`, "ticket_id must be at most 93 characters long, not 94"},
		"status of another case":    {"update_ticket", `{"ticket_id":"TK-1","status":"Open"}`, "status must be one of open, in_progress, resolved, closed"},
		"every wrong field is told": {"update_ticket", `{"ticket_id":"#","status":"done","expected_version":-1}`, "ticket_id must consist of letters, digits and _ . : @ = + -, starting with a letter or digit; status must be one of open, in_progress, resolved, closed; expected_version must not be negative"},
		"version not whole":         {"update_ticket", `{"ticket_id":"TK-1","status":"open","expected_version":1.5}`, "expected_version must be a number in range (int64)"},
		"version a string":          {"update_ticket", `{"ticket_id":"TK-1","status":"open","expected_version":"1"}`, "expected_version must be a number in range (int64)"},
		"thread of another ticket":  {"update_ticket", `{"ticket_id":"TK-1","status":"open","thread_id":"ticket-TK-2"}`, `thread_id must be "ticket-TK-1" or left out for a task of this type`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members, err := task.ParseObject([]byte(tt.fields))
			if err != nil {
				t.Fatal(err)
			}
			_, err = registry(t, agent.Config{}).New(tt.task, members, noon)
			if got := text(err); got != tt.want {
				t.Errorf("New(%s): got %q, want %q", tt.fields, got, tt.want)
			}
		})
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	for name, ordered := range map[string]bool{"rag_query": false, "update_ticket": true, "agent_run": false} {
		if typ, ok := registry(t, agent.Config{}).Lookup(name); !ok || typ.Ordered != ordered {
			t.Errorf("Lookup(%q): got %+v, %t, want ordered %t", name, typ, ok, ordered)
		}
	}
}

func TestTicketUpdateBelongsToItsTicketsThread(t *testing.T) {
	t.Parallel()
	m := message(t, agent.Config{}, `{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`)
	if want := "ticket-TK-1001"; m.Thread != want {
		t.Errorf("thread: got %q, want %q", m.Thread, want)
	}
}

func registry(t *testing.T, c agent.Config) *task.Registry {
	t.Helper()
	r, err := task.NewRegistry(agent.Types(c)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// message reads a message's body the way a worker does.
func message(t *testing.T, c agent.Config, body string) task.Message {
	t.Helper()
	m, err := registry(t, c).Decode([]byte(body), "message-1", noon)
	if err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	return m
}

// execute runs the handler of the message's type.
func execute(t *testing.T, c agent.Config, run task.Run, m task.Message) (jsontext.Value, error) {
	t.Helper()
	typ, ok := registry(t, c).Lookup(m.Task)
	if !ok {
		t.Fatalf("no task type %q", m.Task)
	}
	return typ.Run(t.Context(), run, m)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
