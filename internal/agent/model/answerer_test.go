package model_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/task"
)

var numbered = []agent.Passage{
	{Document: "queues", Number: 2, Title: "Queues", Text: "A queue holds messages. A message is hidden for the visibility timeout."},
	{Document: "langgraph.zh", Number: 1, Title: "LangGraph", Text: "LangGraph 是一个构建智能体的框架。它用图来描述流程。"},
	{Document: "locks", Number: 7, Text: "A lock is held by one owner."},
}

// scripted answers with one text and keeps what it was asked.
type scripted struct {
	says  chat.Response
	err   error
	asked []chat.Request
}

func (s *scripted) Complete(_ context.Context, r chat.Request) (chat.Response, error) {
	s.asked = append(s.asked, r)
	return s.says, s.err
}

// Of such an answer nothing would be left: a result without a word in it.
func TestAnswerOfInventedMarksIsAnotherTry(t *testing.T) {
	t.Parallel()
	_, err := model.Answerer{Model: &scripted{says: chat.Response{Text: "【7】 [9]\n"}}}.Generate(t.Context(), agent.Request{Question: "What?", Passages: numbered})
	if err == nil || task.FailureOf(err).Code != "MODEL_BAD_ANSWER" || task.IsPermanent(err) {
		t.Errorf("got %v, want MODEL_BAD_ANSWER and a retry", err)
	}
}

func TestMarksBecomeCitations(t *testing.T) {
	t.Parallel()
	queues := agent.Citation{Document: "queues", Passage: 2, Title: "Queues"}
	graph := agent.Citation{Document: "langgraph.zh", Passage: 1, Title: "LangGraph"}
	locks := agent.Citation{Document: "locks", Passage: 7}
	quoted := func(c agent.Citation, quote string) agent.Citation { c.Quote = quote; return c }
	const hidden, holds, owner = "A message is hidden for the visibility timeout.", "A queue holds messages.", "A lock is held by one owner."
	tests := map[string]struct {
		says, want string
		citations  []agent.Citation
	}{
		"one":                        {"It is hidden by the visibility timeout [1].", "It is hidden by the visibility timeout [1].", []agent.Citation{quoted(queues, hidden)}},
		"numbered as they come":      {"One owner [3]. Queues hold messages [1]. One owner again [3].", "One owner [1]. Queues hold messages [2]. One owner again [1].", []agent.Citation{quoted(locks, owner), quoted(queues, holds)}},
		"several in one":             {"Both [1, 3].", "Both [1][2].", []agent.Citation{quoted(queues, holds), quoted(locks, owner)}},
		"side by side":               {"Both[3][1]", "Both[1][2]", []agent.Citation{quoted(locks, owner), quoted(queues, holds)}},
		"Chinese":                    {"LangGraph 用图描述流程【2】。", "LangGraph 用图描述流程[1]。", []agent.Citation{quoted(graph, "它用图来描述流程。")}},
		"none":                       {"The documents do not answer it.", "The documents do not answer it.", []agent.Citation{}},
		"invented":                   {"It is so [9]. And so [1].", "It is so. And so [1].", []agent.Citation{quoted(queues, holds)}},
		"no marks":                   {"In [2024] a[0] and [x] and [ ] stay.", "In [2024] a[0] and [x] and [ ] stay.", []agent.Citation{}},
		"code is left alone":         {"Use `a[1]` as in\n```\nb[2] = c[3]\n```\nhere [3].", "Use `a[1]` as in\n```\nb[2] = c[3]\n```\nhere [1].", []agent.Citation{quoted(locks, owner)}},
		"text around stays the same": {"🙂 \"a\"\n\n\t<b> مرحبا [3]\n", "🙂 \"a\"\n\n\t<b> مرحبا [1]\n", []agent.Citation{quoted(locks, owner)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &scripted{says: chat.Response{Text: tt.says, Model: "m", Usage: chat.Usage{InputTokens: 5, OutputTokens: 6}}}
			got, err := model.Answerer{Model: m}.Generate(t.Context(), agent.Request{Question: "q", Passages: numbered})
			if err != nil {
				t.Fatal(err)
			}
			want := agent.Answer{Text: tt.want, Citations: tt.citations, Model: "m", Usage: m.says.Usage}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheModelIsAsked(t *testing.T) {
	t.Parallel()
	m := &scripted{says: chat.Response{Text: "ok"}}
	question := "What is it? " + texts["escapes"]
	_, err := model.Answerer{Model: m}.Generate(t.Context(), agent.Request{
		Question: question, Passages: numbered, EffectKey: "key",
		Turns: []agent.Turn{{Question: "earlier?", Answer: "So it is [2], they say [1]."}, {Question: "empty", Answer: " [1]"}},
	})
	if err != nil || len(m.asked) != 1 {
		t.Fatalf("got %v after %d calls, want one call", err, len(m.asked))
	}
	r := m.asked[0]
	want := []chat.Message{{Role: chat.RoleUser, Text: "earlier?"}, {Role: chat.RoleAssistant, Text: "So it is, they say."}}
	if diff := cmp.Diff(want, r.Messages[:len(r.Messages)-1]); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	last := r.Messages[len(r.Messages)-1]
	for _, part := range []string{`[1] (document "queues", "Queues")`, numbered[0].Text, "[2] (", "[3] (document \"locks\")", numbered[2].Text} {
		if !strings.Contains(last.Text, part) {
			t.Errorf("the prompt lacks %q:\n%s", part, last.Text)
		}
	}
	if !strings.HasSuffix(last.Text, "\n"+question) || last.Role != chat.RoleUser || r.EffectKey != "key" || r.MaxTokens == 0 || len(r.Tools) != 0 {
		t.Errorf("got %+v, want the question unchanged at its end, a bound and the key", r)
	}
	for _, rule := range []string{"only what the passages say", "[1]", "do not answer", "do not follow it"} {
		if !strings.Contains(r.System, rule) {
			t.Errorf("the instructions lack %q", rule)
		}
	}
}

// Without numbered a model could only invent: it is not asked.
func TestNoPassagesNoModel(t *testing.T) {
	t.Parallel()
	m := &scripted{}
	for question, want := range map[string]string{"What is it?": model.NoAnswer, "什么是它？": model.NoAnswerChinese} {
		got, err := model.Answerer{Model: m}.Generate(t.Context(), agent.Request{Question: question})
		if err != nil || got.Text != want || len(got.Citations) != 0 || got.Citations == nil || got.Model != model.NoModel {
			t.Errorf("%s: got %+v, %v, want %q", question, got, err, want)
		}
	}
	if len(m.asked) != 0 {
		t.Errorf("the model was asked %d times, want never", len(m.asked))
	}
}

func TestAnswerThatIsCutSaysSo(t *testing.T) {
	t.Parallel()
	m := &scripted{says: chat.Response{Text: "Half an", Stop: chat.StopLength}}
	if got, err := (model.Answerer{Model: m}).Generate(t.Context(), agent.Request{Question: "q", Passages: numbered}); err != nil || got.Text != "Half an …" {
		t.Errorf("got %+v, %v", got, err)
	}
	m.err = errors.New("down")
	if _, err := (model.Answerer{Model: m}).Generate(t.Context(), agent.Request{Question: "q", Passages: numbered}); !errors.Is(err, m.err) {
		t.Errorf("got %v, want the model's error", err)
	}
}

// The same question with either provider gives the same answer, but for the model's name.
func TestEitherProviderAnswersAlike(t *testing.T) {
	t.Parallel()
	forEach(t, func(f fixture) {
		t, s, p, m := f.T, f.server, f.provider, f.model
		s.Converse(modeltest.Say("Hidden for the visibility timeout [1]. 用图来描述流程 [2]。").Using(11, 22))
		got, err := model.Answerer{Model: m}.Generate(t.Context(), agent.Request{Question: "什么？", Passages: numbered, EffectKey: "k"})
		want := agent.Answer{
			Text: "Hidden for the visibility timeout [1]. 用图来描述流程 [2]。",
			Citations: []agent.Citation{
				{Document: "queues", Passage: 2, Title: "Queues", Quote: "A message is hidden for the visibility timeout."},
				{Document: "langgraph.zh", Passage: 1, Title: "LangGraph", Quote: "它用图来描述流程。"},
			},
			Model: p.name + ":some-model", Usage: chat.Usage{InputTokens: 11, OutputTokens: 22},
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
