package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

// scripted is a model that says one thing after the other, by how much it has said already, and keeps what it was asked.
type scripted struct {
	says     []chat.Response
	requests []chat.Request
	err      error
}

func (m *scripted) Complete(_ context.Context, r chat.Request) (chat.Response, error) {
	m.requests = append(m.requests, r)
	said := 0
	for _, msg := range slices.Backward(r.Messages) {
		if msg.Role == chat.RoleUser {
			break
		}
		if msg.Role == chat.RoleAssistant {
			said++
		}
	}
	if m.err != nil {
		return chat.Response{}, m.err
	}
	if said >= len(m.says) {
		return chat.Response{}, fmt.Errorf("the model has nothing to say after %d turns", said)
	}
	return m.says[said], nil
}

// calls is a model's turn of tool calls, each "name {input}".
func calls(list ...string) chat.Response {
	r := chat.Response{Model: "m-1", Stop: chat.StopTools, Usage: chat.Usage{InputTokens: 100, OutputTokens: 10}}
	for i, c := range list {
		name, input, _ := strings.Cut(c, " ")
		r.ToolCalls = append(r.ToolCalls, chat.ToolCall{ID: fmt.Sprintf("id-%d", i+1), Name: name, Input: jsontext.Value(input)})
	}
	return r
}

func answers(text string) chat.Response {
	return chat.Response{Text: text, Model: "m-1", Stop: chat.StopEnd, Usage: chat.Usage{InputTokens: 100, OutputTokens: 10}}
}

// agentConfig has a ticket TK-1001 at open, version 7.
func agentConfig(m chat.Model) (agent.Config, *retriever) {
	docs := &retriever{}
	return agent.Config{Retriever: docs, Tickets: holding("open", 7), Chat: m, Now: func() time.Time { return noon }}, docs
}

func agentMessage(t *testing.T, c agent.Config, fields string) task.Message {
	t.Helper()
	return message(t, c, `{"task":"agent_run","thread_id":"th-1",`+fields+`}`)
}

// An answer that reached the bound on its tokens says that it goes on, as a rag_query's does.
func TestAnAnswerThatIsCutShowsIt(t *testing.T) {
	t.Parallel()
	half := answers("Half an")
	half.Stop = chat.StopLength
	c, _ := agentConfig(&scripted{says: []chat.Response{half}})
	msg := agentMessage(t, c, `"question":"What is it?"`)
	got, err := execute(t, c, tasktest.NewRun(msg.ID), msg)
	if want := `"answer":"Half an …"`; err != nil || !strings.Contains(string(got), want) {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}

func TestAgentRun(t *testing.T) {
	t.Parallel()
	m := &scripted{says: []chat.Response{
		calls(`search_documents {"query":"text"}`, `get_ticket {"ticket_id":"TK-1001"}`),
		calls(`update_ticket {"ticket_id":"TK-1001","status":"in_progress"}`),
		answers("It is Text [d#1]; see also [d#9]."),
	}}
	c, docs := agentConfig(m)
	msg := agentMessage(t, c, `"question":"What is it, and start on TK-1001?"`)
	run := tasktest.NewRun(msg.ID)
	got, err := execute(t, c, run, msg)
	if err != nil {
		t.Fatal(err)
	}
	committed, _ := run.Committed("model-3")
	want := `{"question":"What is it, and start on TK-1001?","answer":"It is Text [d#1]; see also [d#9].",` +
		`"citations":[{"document":"d","passage":1,"title":"T"}],"steps":6,"tokens":{"input":300,"output":30},"model":"m-1"}`
	if string(committed) != want || string(got) != want {
		t.Errorf("result:\n got %s\nlast %s\nwant %s", got, committed, want)
	}
	steps := []string{"model-1", "tool-1-1-search_documents", "tool-1-2-get_ticket", "model-2", "tool-2-1-update_ticket", "model-3"}
	if diff := cmp.Diff(steps, run.Ran()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]task.Ticket{{ID: "TK-1001", Status: "in_progress", Version: 8, UpdatedAt: noon}}, run.Tickets()); diff != "" {
		t.Errorf("ticket changes (-want +got):\n%s", diff)
	}
	if !slices.Equal(docs.queries, []string{"text"}) {
		t.Errorf("searches: got %q, want one for text", docs.queries)
	}

	// What the model was asked at last is all that was said, each tool's answer under its call.
	last := m.requests[2]
	wantMessages := []chat.Message{
		{Role: chat.RoleUser, Text: "What is it, and start on TK-1001?"},
		{Role: chat.RoleAssistant, ToolCalls: calls(`search_documents {"query":"text"}`, `get_ticket {"ticket_id":"TK-1001"}`).ToolCalls},
		{Role: chat.RoleTool, ToolCallID: "id-1", Text: `{"passages":[{"cite":"[d#1]","document":"d","passage":1,"title":"T","text":"Text."},{"cite":"[d#2]","document":"d","passage":2,"text":"<& ` + "\u2028" + `"}]}`},
		{Role: chat.RoleTool, ToolCallID: "id-2", Text: `{"ticket_id":"TK-1001","status":"open","version":7,"updated_at":"2026-11-29T11:00:00Z"}`},
		{Role: chat.RoleAssistant, ToolCalls: calls(`update_ticket {"ticket_id":"TK-1001","status":"in_progress"}`).ToolCalls},
		{Role: chat.RoleTool, ToolCallID: "id-1", Text: `{"ticket_id":"TK-1001","from":"open","status":"in_progress","version":8,"changed":true}`},
	}
	if diff := cmp.Diff(wantMessages, last.Messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if key := string(msg.ID) + "/model-3"; last.EffectKey != key || len(last.Tools) != 3 || last.System == "" {
		t.Errorf("request: got key %q and %d tools, want %q and 3, with instructions", last.EffectKey, len(last.Tools), key)
	}
}

// Whatever is wrong with a call, the model hears of it, and the run goes on.
func TestAWrongCallIsHandedBackToTheModel(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ call, want string }{
		"unknown tool":       {`delete_ticket {"ticket_id":"TK-1001"}`, "there is no tool of this name; there are: search_documents, get_ticket, update_ticket"},
		"impossible name":    {"\xff" + strings.Repeat("長", 100) + ` {}`, "there is no tool of this name"},
		"no name":            {` {}`, "there is no tool of this name"},
		"not JSON":           {`search_documents {"query":`, "the input is not valid JSON"},
		"empty":              {`search_documents `, "the input is not valid JSON"},
		"a name twice":       {`search_documents {"query":"a","query":"b"}`, "the input is not valid JSON (names must be unique)"},
		"not an object":      {`search_documents "query"`, `the input does not fit the tool's schema: validating root: type: query has type "string", want "object"`},
		"field missing":      {`get_ticket {}`, `required: missing properties: ["ticket_id"]`},
		"field of another":   {`get_ticket {"Ticket_ID":"TK-1001"}`, `unexpected additional properties ["Ticket_ID"]`},
		"unknown field":      {`update_ticket {"ticket_id":"TK-1001","status":"closed","x":1}`, `unexpected additional properties ["x"]`},
		"impossible value":   {`update_ticket {"ticket_id":"TK-1001","status":"done"}`, "validating /properties/status: enum: done does not equal any of: [open in_progress resolved closed]"},
		"of another type":    {`update_ticket {"ticket_id":7,"status":"closed"}`, `validating /properties/ticket_id: type: 7 has type "integer", want "string"`},
		"a huge value":       {`update_ticket {"ticket_id":"TK-1001","status":"` + strings.Repeat("長", 60_000) + `"}`, "長…"},
		"version negative":   {`update_ticket {"ticket_id":"TK-1001","status":"closed","expected_version":-1}`, "minimum: -1"},
		"version too large":  {`update_ticket {"ticket_id":"TK-1001","status":"closed","expected_version":9223372036854775808}`, "the input cannot be read"},
		"version is another": {`update_ticket {"ticket_id":"TK-1001","status":"closed","expected_version":6}`, "ticket TK-1001 has version 7, not the expected 6"},
		"illegal transition": {`update_ticket {"ticket_id":"TK-1001","status":"resolved"}`, `from "open" it can go to: in_progress, closed`},
		"impossible ticket":  {`get_ticket {"ticket_id":"#"}`, "ticket_id must consist of"},
		"no such ticket":     {`get_ticket {"ticket_id":"TK-2"}`, "there is no ticket TK-2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &scripted{says: []chat.Response{calls(tt.call), answers("Sorry.")}}
			c, docs := agentConfig(m)
			msg := agentMessage(t, c, `"question":"q"`)
			run := tasktest.NewRun(msg.ID)
			if _, err := execute(t, c, run, msg); err != nil {
				t.Fatalf("the run failed with %v, want an answer", err)
			}
			heard := m.requests[1].Messages[2]
			if heard.Role != chat.RoleTool || !heard.ToolError || !strings.Contains(heard.Text, tt.want) {
				t.Errorf("the model heard %+v, want an error with %q", heard, tt.want)
			}
			if len(heard.Text) > 1_100 {
				t.Errorf("the model heard %d bytes, want a bounded number", len(heard.Text))
			}
			if said := m.requests[1].Messages[1].ToolCalls[0]; said.ID != heard.ToolCallID || !said.Input.IsValid() || said.Input.Kind() != '{' && tt.call[0] != 's' || said.Name == "" {
				t.Errorf("the call is repeated to the model as %+v, want it in a form that providers take", said)
			}
			if len(run.Tickets()) != 0 || len(docs.queries) != 0 {
				t.Errorf("the call took effect: %v, %q", run.Tickets(), docs.queries)
			}
		})
	}
}

func TestCallsAreToldApart(t *testing.T) {
	t.Parallel()
	three := calls(`search_documents {"query":"a"}`, `search_documents {"query":"b"}`, `search_documents {"query":"c"}`)
	for i := range three.ToolCalls {
		three.ToolCalls[i].ID = []string{"", "same", "same"}[i]
	}
	m := &scripted{says: []chat.Response{three, answers("Done.")}}
	c, _ := agentConfig(m)
	msg := agentMessage(t, c, `"question":"q"`)
	if _, err := execute(t, c, tasktest.NewRun(msg.ID), msg); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, call := range m.requests[1].Messages[1].ToolCalls {
		ids = append(ids, call.ID)
		if heard := m.requests[1].Messages[2+i]; heard.ToolCallID != call.ID {
			t.Errorf("answer %d is for call %q, want %q", i+1, heard.ToolCallID, call.ID)
		}
	}
	if slices.Contains(ids, "") || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 3 {
		t.Errorf("ids: got %q, want three different ones", ids)
	}
}

// A tool that fails for reasons of its own fails the attempt; the next one makes the call again under the same key, and
// nothing else.
func TestAToolThatFailsIsCalledAgain(t *testing.T) {
	t.Parallel()
	m := &scripted{says: []chat.Response{calls(`search_documents {"query":"text"}`), answers("Done.")}}
	c, docs := agentConfig(m)
	docs.err = errors.New("the index is away")
	msg := agentMessage(t, c, `"question":"q"`)
	run := tasktest.NewRun(msg.ID)
	if _, err := execute(t, c, run, msg); !errors.Is(err, docs.err) || task.IsPermanent(err) {
		t.Fatalf("got %v, want %v as a plain error", err, docs.err)
	}
	docs.err = nil
	if _, err := execute(t, c, run.Resume(), msg); err != nil {
		t.Fatal(err)
	}
	step := string(msg.ID) + "/tool-1-1-search_documents"
	if want := []string{string(msg.ID) + "/model-1", step, step, string(msg.ID) + "/model-2"}; !slices.Equal(run.Keys(), want) {
		t.Errorf("steps ran under the keys %q, want %q", run.Keys(), want)
	}
}

// What the model says of its failure stands.
func TestAModelsFailureIsTheAttempts(t *testing.T) {
	t.Parallel()
	m := &scripted{err: task.RetryAfter(task.WithCode("MODEL_THROTTLED", errors.New("slow down")), time.Minute)}
	c, _ := agentConfig(m)
	msg := agentMessage(t, c, `"question":"q"`)
	_, err := execute(t, c, tasktest.NewRun(msg.ID), msg)
	if d, ok := task.Delay(err); !ok || d != time.Minute || task.FailureOf(err).Code != "MODEL_THROTTLED" || task.IsPermanent(err) {
		t.Errorf("got %v, want MODEL_THROTTLED with a minute's delay", err)
	}
	m.err, m.says = nil, []chat.Response{answers(" \n")}
	if _, err := execute(t, c, tasktest.NewRun(msg.ID), msg); err == nil || task.IsPermanent(err) {
		t.Errorf("an answer without content gives %v, want an error that is tried again", err)
	}
}

func TestTokenLimit(t *testing.T) {
	t.Parallel()
	search := calls(`search_documents {"query":"text"}`)
	m := &scripted{says: []chat.Response{search, search, search, answers("Done.")}}
	c, _ := agentConfig(m)
	c.TokenLimit = 250
	msg := agentMessage(t, c, `"question":"q"`)
	run := tasktest.NewRun(msg.ID)
	for range 2 { // also when it is tried again
		_, err := execute(t, c, run, msg)
		wantFailure(t, err, task.CodeTokenLimit, "the task has used 330 tokens, its limit is 250")
		run = run.Resume()
	}
	var bounds []int
	for _, r := range m.requests {
		bounds = append(bounds, r.MaxTokens)
	}
	if want := []int{250, 140, 30}; !slices.Equal(bounds, want) {
		t.Errorf("the calls' bounds are %v, want what is left: %v", bounds, want)
	}
	if got, want := run.Tokens(), (task.Tokens{Input: 300, Output: 30}); got != want {
		t.Errorf("used: got %+v, want %+v", got, want)
	}
}

// An answer that is cut at what is left of the limit is the limit's failure and not the model's.
func TestTokenLimitInTheMiddleOfAnAnswer(t *testing.T) {
	t.Parallel()
	cut := task.Permanent(task.WithCode(chat.CodeCut, errors.New("cut")))
	for limit, want := range map[int64]string{250: task.CodeTokenLimit, agent.DefaultTokenLimit: chat.CodeCut} {
		m := &scripted{err: cut}
		c, _ := agentConfig(m)
		c.TokenLimit = limit
		msg := agentMessage(t, c, `"question":"q"`)
		_, err := execute(t, c, tasktest.NewRun(msg.ID), msg)
		if got := task.FailureOf(err); got.Code != want || !task.IsPermanent(err) {
			t.Errorf("with %d tokens left: got %+v, want %s for good", limit, got, want)
		}
	}
}

func TestStepLimit(t *testing.T) {
	t.Parallel()
	search := calls(`search_documents {"query":"a"}`, `search_documents {"query":"b"}`)
	tests := map[string]struct {
		fields string
		model  int // calls that are made
		tools  int
	}{
		"in a turn's calls":   {`"question":"q","max_steps":5`, 2, 3},
		"before a model call": {`"question":"q","max_steps":6`, 2, 4},
		"one":                 {`"question":"q","max_steps":1`, 1, 0},
		"default":             {`"question":"q"`, 7, 13},
		"most":                {`"question":"q","max_steps":30`, 10, 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &scripted{says: slices.Repeat([]chat.Response{search}, 40)}
			c, docs := agentConfig(m)
			msg := agentMessage(t, c, tt.fields)
			_, err := execute(t, c, tasktest.NewRun(msg.ID), msg)
			wantFailure(t, err, agent.CodeStepLimit, fmt.Sprintf("no answer after %d steps", tt.model+tt.tools))
			if len(m.requests) != tt.model || len(docs.queries) != tt.tools {
				t.Errorf("got %d model and %d tool calls, want %d and %d", len(m.requests), len(docs.queries), tt.model, tt.tools)
			}
		})
	}
}

// The thread's context is what it was when the run began, also for an attempt from which the run's own steps hide it; and a run's
// answer is context for the next question.
func TestContextOfARun(t *testing.T) {
	t.Parallel()
	m := &scripted{says: []chat.Response{calls(`search_documents {"query":"text"}`), answers("Second.")}}
	c, _ := agentConfig(m)
	msg := agentMessage(t, c, `"question":"And then?"`)
	turn := func(typ, data string) task.Turn {
		return task.Turn{TaskID: task.NewID("th-1", noon), Task: typ, Data: jsontext.Value(data)}
	}
	run := tasktest.NewRun(msg.ID, turn("agent_run", `{"question":"Who?","answer":"First.","steps":3}`), turn("rag_query", `{"question":"Empty?","answer":""}`))
	m.says = m.says[:1]
	if _, err := execute(t, c, run, msg); err == nil {
		t.Fatal("want the first attempt to fail at its second model call")
	}
	m.says = append(m.says, answers("Second."))
	blind := &blindRun{run.Resume()}
	if _, err := execute(t, c, blind, msg); err != nil {
		t.Fatal(err)
	}
	want := []chat.Message{{Role: chat.RoleUser, Text: "Who?"}, {Role: chat.RoleAssistant, Text: "First."}, {Role: chat.RoleUser, Text: "And then?"}}
	for i, r := range m.requests {
		if diff := cmp.Diff(want, r.Messages[:min(3, len(r.Messages))]); diff != "" {
			t.Errorf("model call %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// blindRun is an attempt that does not see the thread's earlier results any more.
type blindRun struct{ *tasktest.Run }

func (*blindRun) Turns() []task.Turn { return nil }

func TestAnyTextSurvivesARun(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Chinese": "什么是 LangGraph？", "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈", "right to left": "مرحبا שלום\u200f", "escapes": "\u2028\u2029<&>\\\"\t\n\x00\x1f\x7f\ufffe",
		"long": strings.Repeat("长文本 ", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input, _ := json.Marshal(map[string]string{"query": text})
			m := &scripted{says: []chat.Response{calls("search_documents " + string(input)), answers(text)}}
			m.says[0].Text = text
			c, docs := agentConfig(m)
			question, _ := json.Marshal(text)
			msg := agentMessage(t, c, `"question":`+string(question))
			raw, err := execute(t, c, tasktest.NewRun(msg.ID), msg)
			var got agent.RunResult
			if err := errors.Join(err, json.Unmarshal(raw, &got)); err != nil {
				t.Fatal(err)
			}
			if got.Question != text || got.Answer != text || docs.queries[0] != text || m.requests[1].Messages[1].Text != text {
				t.Errorf("some of the text has changed on its way")
			}
		})
	}
}
