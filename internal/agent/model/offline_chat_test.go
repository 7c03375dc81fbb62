package model_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
)

// offlineTools are what the rules know.
func offlineTools() []chat.Tool {
	var tools []chat.Tool
	for _, name := range []string{agent.ToolSearchDocuments, agent.ToolGetTicket, agent.ToolUpdateTicket} {
		tools = append(tools, chat.Tool{Name: name, Schema: jsontext.Value(`{"type":"object"}`)})
	}
	return tools
}

// converse lets the rules work until they answer. Tools give what results holds for them.
func converse(t *testing.T, question string, tools []chat.Tool, results map[string]chat.Message) (calls []string, answer string) {
	t.Helper()
	r := user(question)
	r.Tools = tools
	ids := map[string]bool{}
	for range 10 {
		got, err := model.Offline{}.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.ToolCalls) == 0 {
			if got.Stop != chat.StopEnd || got.Model != model.Name {
				t.Errorf("got stop %q of model %q", got.Stop, got.Model)
			}
			return calls, got.Text
		}
		r.Messages = append(r.Messages, chat.Message{Role: chat.RoleAssistant, ToolCalls: got.ToolCalls})
		for _, c := range got.ToolCalls {
			if ids[c.ID] || c.ID == "" {
				t.Errorf("call id %q is missing or used twice", c.ID)
			}
			ids[c.ID] = true
			calls = append(calls, c.Name+" "+string(c.Input))
			m := results[c.Name]
			m.Role, m.ToolCallID = chat.RoleTool, c.ID
			r.Messages = append(r.Messages, m)
		}
	}
	t.Fatalf("no answer to %q after calls %q", question, calls)
	return nil, ""
}

func TestOfflineRunUsesTools(t *testing.T) {
	t.Parallel()
	results := map[string]chat.Message{
		agent.ToolSearchDocuments: {Text: `{"passages":[{"cite":"[langgraph#1]","document":"langgraph","passage":1,"title":"LangGraph","text":"LangGraph is a framework for agents. It is written in Python."}]}`},
		agent.ToolGetTicket:       {Text: `{"ticket_id":"TK-1001","status":"open","version":3}`},
		agent.ToolUpdateTicket:    {Text: `{"ticket_id":"TK-1001","from":"open","status":"closed","version":4,"changed":true}`},
	}
	tests := map[string]struct {
		question string
		calls    []string
		says     []string
	}{
		"a question": {"What is LangGraph?", []string{`search_documents {"query":"What is LangGraph?"}`}, []string{"LangGraph is a framework for agents. [langgraph#1]"}},
		"a ticket":   {"What is the status of TK-1001?", []string{`get_ticket {"ticket_id":"TK-1001"}`}, []string{"Ticket TK-1001 is open (version 3)."}},
		"an order":   {"Please close ticket TK-1001.", []string{`update_ticket {"status":"closed","ticket_id":"TK-1001"}`}, []string{"Ticket TK-1001 is closed (version 4)."}},
		"no order":   {"Is TK-1001 closed?", []string{`get_ticket {"ticket_id":"TK-1001"}`}, []string{"is open"}},
		"two things": {"Move TK-1001 to closed. What is LangGraph?", []string{`update_ticket {"status":"closed","ticket_id":"TK-1001"}`, `search_documents {"query":"What is LangGraph?"}`}, []string{"is closed", "[langgraph#1]"}},
		"Chinese":    {"把工单 TK-1001 关闭。", []string{`update_ticket {"status":"closed","ticket_id":"TK-1001"}`}, []string{"工单 TK-1001 的状态是 closed"}},
		"reopen":     {"Reopen TK-7", []string{`update_ticket {"status":"open","ticket_id":"TK-7"}`}, nil},
		"progress":   {"Set TK-7 to in_progress", []string{`update_ticket {"status":"in_progress","ticket_id":"TK-7"}`}, nil},
		"markup":     {`"quoted" <b> 🙂 TK?`, []string{`search_documents {"query":"\"quoted\" <b> 🙂 TK?"}`}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, answer := converse(t, tt.question, offlineTools(), results)
			if strings.Join(calls, "\n") != strings.Join(tt.calls, "\n") {
				t.Errorf("calls: got %q, want %q", calls, tt.calls)
			}
			for _, want := range tt.says {
				if !strings.Contains(answer, want) {
					t.Errorf("answer: got %q, want %q in it", answer, want)
				}
			}
			if !strings.Contains(answer, model.NoLanguageModel) && !strings.Contains(answer, model.NoLanguageModelChinese) {
				t.Errorf("the answer does not say that it is no language model's: %q", answer)
			}
		})
	}
}

func TestOfflineRunReportsWhatWentWrong(t *testing.T) {
	t.Parallel()
	_, answer := converse(t, "Resolve TK-1.", offlineTools(), map[string]chat.Message{
		agent.ToolUpdateTicket: {Text: `ticket TK-1 cannot go from "open" to "resolved"`, ToolError: true},
	})
	if !strings.Contains(answer, "cannot go from") {
		t.Errorf("got %q, want the tool's words", answer)
	}
	for _, result := range []string{`{"passages":[]}`, `{`, ``, `null`} {
		_, answer = converse(t, "What is it?", offlineTools(), map[string]chat.Message{agent.ToolSearchDocuments: {Text: result}})
		if !strings.HasPrefix(answer, model.NoAnswer) {
			t.Errorf("search result %q: got %q, want %q", result, answer, model.NoAnswer)
		}
	}
	calls, answer := converse(t, "Close TK-1. What is it?", nil, nil)
	if len(calls) != 0 || !strings.HasPrefix(answer, model.NoAnswer) {
		t.Errorf("without tools: got calls %q and %q", calls, answer)
	}
}

// An earlier conversation is context, not an order.
func TestOfflineRunActsOnTheNewestQuestionOnly(t *testing.T) {
	t.Parallel()
	r := chat.Request{Tools: offlineTools(), Messages: []chat.Message{
		{Role: chat.RoleUser, Text: "Close TK-1. What is a dead-letter queue?"},
		{Role: chat.RoleAssistant, Text: "Done."},
		{Role: chat.RoleUser, Text: "And what does it hold?"},
	}}
	got, err := model.Offline{}.Complete(t.Context(), r)
	if err != nil || len(got.ToolCalls) != 1 || got.ToolCalls[0].Name != agent.ToolSearchDocuments || !strings.Contains(string(got.ToolCalls[0].Input), "dead-letter") {
		t.Errorf("got %+v, %v, want one search with the subject of the question before", got, err)
	}
}
