package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

// retriever counts its calls.
type retriever struct {
	queries []string
	err     error
}

func (r *retriever) Retrieve(_ context.Context, query string, k int) ([]agent.Passage, error) {
	r.queries = append(r.queries, query)
	found := []agent.Passage{{Document: "d", Number: 1, Title: "T", Text: "Text."}, {Document: "d", Number: 2, Text: "<& \u2028"}}
	return found[:min(k, len(found))], r.err
}

// recorder is a model that keeps its requests.
type recorder struct {
	requests []agent.Request
	err      error
}

func (m *recorder) Generate(_ context.Context, r agent.Request) (agent.Answer, error) {
	m.requests = append(m.requests, r)
	return agent.Answer{Text: "Because.", Citations: []agent.Citation{{Document: "d", Passage: 1, Title: "T", Quote: "Text."}}, Model: "recorder"}, m.err
}

func TestQueryRetrievesThenGenerates(t *testing.T) {
	t.Parallel()
	r, m := &retriever{}, &recorder{}
	c := agent.Config{Retriever: r, Model: m}
	msg := message(t, c, `{"task":"rag_query","thread_id":"th-1","question":"Why?"}`)
	run := tasktest.NewRun(msg.ID, turn(t, "Is it so?", "It is."))
	got, err := execute(t, c, run, msg)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"question":"Why?","answer":"Because.","citations":[{"document":"d","passage":1,"title":"T","quote":"Text."}],"model":"recorder"}`
	if string(got) != want {
		t.Errorf("result: got %s, want %s", got, want)
	}
	if committed, ok := run.Committed("generate"); !ok || string(committed) != want {
		t.Errorf("committed: got %s, want %s", committed, want)
	}
	wantRequest := agent.Request{
		Question:  "Why?",
		Turns:     []agent.Turn{{Question: "Is it so?", Answer: "It is."}},
		Passages:  []agent.Passage{{Document: "d", Number: 1, Title: "T", Text: "Text."}, {Document: "d", Number: 2, Text: "<& \u2028"}},
		EffectKey: string(msg.ID) + "/generate",
	}
	if diff := cmp.Diff([]agent.Request{wantRequest}, m.requests); diff != "" {
		t.Errorf("requests to the model (-want +got):\n%s", diff)
	}
}

func TestFailedAnswerIsGeneratedAgain(t *testing.T) {
	t.Parallel()
	down := errors.New("model is down")
	r, m := &retriever{}, &recorder{err: down}
	c := agent.Config{Retriever: r, Model: m}
	msg := message(t, c, `{"task":"rag_query","thread_id":"th-1","question":"Why?"}`)
	run := tasktest.NewRun(msg.ID)
	if _, err := execute(t, c, run, msg); !errors.Is(err, down) || task.IsPermanent(err) {
		t.Fatalf("first attempt: got %v, want %v, to be retried", err, down)
	}
	m.err = nil
	again := run.Resume()
	if _, err := execute(t, c, again, msg); err != nil {
		t.Fatal(err)
	}
	if len(m.requests) != 2 || !cmp.Equal(m.requests[0], m.requests[1]) {
		t.Errorf("requests to the model: got %+v, want the same one twice", m.requests)
	}
}

func TestCommittedAnswerIsNotGeneratedAgain(t *testing.T) {
	t.Parallel()
	m := &recorder{}
	c := agent.Config{Retriever: &retriever{}, Model: m}
	msg := message(t, c, `{"task":"rag_query","thread_id":"th-1","question":"Why?"}`)
	run := tasktest.NewRun(msg.ID)
	first, err := execute(t, c, run, msg)
	if err != nil {
		t.Fatal(err)
	}
	second, err := execute(t, c, run.Resume(), msg)
	if err != nil || string(first) != string(second) {
		t.Errorf("resumed: got %s, %v, want %s", second, err, first)
	}
	if len(m.requests) != 1 {
		t.Errorf("requests to the model: got %d, want 1", len(m.requests))
	}
}

func TestFailedRetrievalIsRetried(t *testing.T) {
	t.Parallel()
	down := errors.New("search is down")
	c := agent.Config{Retriever: &retriever{err: down}, Model: &recorder{}}
	msg := message(t, c, `{"task":"rag_query","thread_id":"th-1","question":"Why?"}`)
	if _, err := execute(t, c, tasktest.NewRun(msg.ID), msg); !errors.Is(err, down) || task.IsPermanent(err) {
		t.Errorf("got %v, want %v, to be retried", err, down)
	}
}

func TestOfflineAnswers(t *testing.T) {
	t.Parallel()
	fifo := turn(t, "Does SQS keep the order of messages?", "A standard queue does not.")
	tests := map[string]struct {
		question string
		turns    []task.Turn
		document string // of the first citation; empty: no answer
		contains string
	}{
		"English":           {question: "What is LangGraph?", document: "langgraph", contains: "library for building stateful agents"},
		"Chinese":           {question: "什么是 LangGraph？", document: "langgraph.zh", contains: "有状态智能体"},
		"Chinese words":     {question: "死信队列是什么？", document: "dead-letter-queues.zh", contains: "无法处理的消息"},
		"follow-up":         {question: "and what about FIFO?", turns: []task.Turn{fifo}, document: "sqs-fifo", contains: "keeps the order of messages"},
		"follow-up chain":   {question: "And why is that?", turns: []task.Turn{fifo, turn(t, "And for FIFO?", "It does.")}, document: "sqs-fifo", contains: "order"},
		"Chinese follow-up": {question: "它最长多久？", turns: []task.Turn{turn(t, "什么是可见性超时？", "…")}, document: "visibility-timeout.zh", contains: "12 小时"},
		"new subject":       {question: "What is LangGraph?", turns: []task.Turn{fifo}, document: "langgraph", contains: "library"},
		"unrelated":         {question: "What is the capital of France?", turns: []task.Turn{fifo}, contains: model.NoAnswer},
		"Chinese unrelated": {question: "法国的首都在哪里？", contains: model.NoAnswerChinese},
		"about nothing":     {question: "What is it?", contains: model.NoAnswer},
	}
	c := agent.Config{Retriever: retrieval.Builtin(), Model: model.Offline{}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(map[string]string{"task": "rag_query", "thread_id": "th-1", "question": tt.question})
			if err != nil {
				t.Fatal(err)
			}
			msg := message(t, c, string(body))
			run := tasktest.NewRun(msg.ID, tt.turns...)
			raw, err := execute(t, c, run, msg)
			if err != nil {
				t.Fatal(err)
			}
			var got agent.QuestionResult
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(got.Answer, tt.contains) || got.Model != "offline" || got.Question != tt.question {
				t.Errorf("got %+v, want an answer with %q", got, tt.contains)
			}
			switch {
			case tt.document == "" && (got.Answer != tt.contains || len(got.Citations) != 0 || !strings.Contains(string(raw), `"citations":[]`)):
				t.Errorf("got %s, want no answer and an empty list of citations", raw)
			case tt.document != "" && (len(got.Citations) == 0 || got.Citations[0].Document != tt.document):
				t.Errorf("citations: got %+v, want %s first", got.Citations, tt.document)
			}
			// Up to 1 KB an item costs one write unit.
			if data, ok := run.Committed("generate"); !ok || len(data) >= 1000 {
				t.Errorf("committed %d bytes, want fewer than 1000", len(data))
			}
		})
	}
}

// keeper keeps what was found last.
type keeper struct {
	agent.Retriever
	passages []agent.Passage
}

func (k *keeper) Retrieve(ctx context.Context, query string, n int) (_ []agent.Passage, err error) {
	k.passages, err = k.Retriever.Retrieve(ctx, query, n)
	return k.passages, err
}

// Every sentence of an answer stands in the passages, word for word.
func TestOfflineInventsNothing(t *testing.T) {
	t.Parallel()
	found := &keeper{Retriever: retrieval.Builtin()}
	c := agent.Config{Retriever: found, Model: model.Offline{}}
	for _, question := range []string{"What is a dead-letter queue?", "How do agents use tools?", "智能体有哪些限制？", "什么是幂等？"} {
		body, _ := json.Marshal(map[string]string{"task": "rag_query", "thread_id": "th-1", "question": question})
		msg := message(t, c, string(body))
		run := tasktest.NewRun(msg.ID)
		raw, err := execute(t, c, run, msg)
		if err != nil {
			t.Fatal(err)
		}
		var result agent.QuestionResult
		if err := json.Unmarshal(raw, &result); err != nil {
			t.Fatal(err)
		}
		rest := result.Answer
		for i, cited := range result.Citations {
			at := slices.IndexFunc(found.passages, func(p agent.Passage) bool { return p.Document == cited.Document && p.Number == cited.Passage })
			if at < 0 {
				t.Fatalf("%q: citation %+v is not among the passages", question, cited)
			}
			marker := fmt.Sprintf(" [%d]", i+1)
			end := strings.LastIndex(rest, marker)
			if end < 0 {
				t.Fatalf("%q: answer %q does not refer to citation%s", question, result.Answer, marker)
			}
			for said := range strings.SplitSeq(rest[:end], marker) {
				if said = strings.TrimSpace(said); !strings.Contains(found.passages[at].Text, said) {
					t.Errorf("%q: %q is not in passage %+v", question, said, found.passages[at])
				}
			}
			rest = rest[end+len(marker):]
		}
		if rest != "" || len(result.Citations) == 0 {
			t.Errorf("%q: answer %q, of which %q has no citation", question, result.Answer, rest)
		}
	}
}

func turn(t *testing.T, question, answer string) task.Turn {
	t.Helper()
	data, err := json.Marshal(agent.QuestionResult{Question: question, Answer: answer})
	if err != nil {
		t.Fatal(err)
	}
	return task.Turn{Task: agent.RAGQuery, Data: data}
}
