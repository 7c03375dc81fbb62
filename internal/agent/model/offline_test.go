package model_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/agent/model"
)

var passages = []agent.Passage{
	{Document: "fruit", Number: 2, Title: "Apples", Text: "Apples keep for months in a cellar. Pears do not."},
	{Document: "fruit.zh", Number: 1, Title: "苹果", Text: "苹果可以在地窖里存放数月。梨不行！"},
	{Document: "tools", Number: 7, Text: "A ladder helps to pick apples and pears. A saw does not."},
}

func TestOffline(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		request   agent.Request
		want      string
		citations []agent.Citation
	}{
		"the sentence that fits, not its neighbour": {
			request:   agent.Request{Question: "How long do apples keep in a cellar?", Passages: passages},
			want:      "Apples keep for months in a cellar. [1]",
			citations: []agent.Citation{{Document: "fruit", Passage: 2, Title: "Apples"}},
		},
		"Chinese sentences end with 。": {
			request:   agent.Request{Question: "苹果在地窖里存放多久？", Passages: passages},
			want:      "苹果可以在地窖里存放数月。 [1]",
			citations: []agent.Citation{{Document: "fruit.zh", Passage: 1, Title: "苹果"}},
		},
		"several passages are numbered as they are cited": {
			request:   agent.Request{Question: "pears", Passages: passages},
			want:      "Pears do not. [1] A ladder helps to pick apples and pears. [2]",
			citations: []agent.Citation{{Document: "fruit", Passage: 2, Title: "Apples"}, {Document: "tools", Passage: 7}},
		},
		"two sentences of one passage share a citation": {
			request:   agent.Request{Question: "apples?", Passages: []agent.Passage{{Document: "d", Number: 1, Text: "Apples are red. Apples are round."}}},
			want:      "Apples are red. [1] Apples are round. [1]",
			citations: []agent.Citation{{Document: "d", Passage: 1}},
		},
		"the same sentence once": {
			request: agent.Request{Question: "apples?", Passages: []agent.Passage{
				{Document: "d", Number: 1, Text: "Apples are red."}, {Document: "e", Number: 1, Text: "Apples are red."},
			}},
			want:      "Apples are red. [1]",
			citations: []agent.Citation{{Document: "d", Passage: 1}},
		},
		"a follow-up takes the question before it along": {
			request: agent.Request{
				Question: "And why?", Passages: passages,
				Turns: []agent.Turn{{Question: "What helps with a ladder?"}},
			},
			want:      "A ladder helps to pick apples and pears. [1]",
			citations: []agent.Citation{{Document: "tools", Passage: 7}},
		},
		"passages that do not answer": {
			request: agent.Request{Question: "Who is the president?", Passages: passages},
			want:    model.NoAnswer, citations: []agent.Citation{},
		},
		"no passages":            {request: agent.Request{Question: "apples"}, want: model.NoAnswer, citations: []agent.Citation{}},
		"no passages in Chinese": {request: agent.Request{Question: "总统是谁？"}, want: model.NoAnswerChinese, citations: []agent.Citation{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := model.Offline{}.Generate(t.Context(), tt.request)
			if err != nil {
				t.Fatal(err)
			}
			want := agent.Answer{Text: tt.want, Citations: tt.citations, Model: "offline"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfflineAnswerIsBounded(t *testing.T) {
	t.Parallel()
	many := agent.Passage{Document: "d", Number: 1, Text: strings.Join([]string{"Apples a.", "Apples b.", "Apples c.", "Apples d.", "Apples e."}, " ")}
	got, err := model.Offline{}.Generate(t.Context(), agent.Request{Question: "apples", Passages: []agent.Passage{many}})
	if n := strings.Count(got.Text, "[1]"); err != nil || n != 3 {
		t.Errorf("got %d sentences (%q, %v), want 3", n, got.Text, err)
	}
}

func TestOfflineStopsWhenCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (model.Offline{}).Generate(ctx, agent.Request{Question: "apples", Passages: passages}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
