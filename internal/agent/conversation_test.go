package agent_test

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/task"
)

func TestConversationIsBounded(t *testing.T) {
	t.Parallel()
	t.Run("in turns", func(t *testing.T) {
		t.Parallel()
		var results []task.Turn
		for i := range 25 {
			results = append(results, turn(t, "q"+strconv.Itoa(i), "a"))
		}
		got := agent.Conversation(results)
		if len(got) != agent.MaxTurns || got[0].Question != "q15" || got[9].Question != "q24" {
			t.Errorf("got %+v, want the turns 15 to 24", got)
		}
	})
	t.Run("in characters", func(t *testing.T) {
		t.Parallel()
		results := []task.Turn{turn(t, "small", "one"), turn(t, "早", strings.Repeat("长", 3_000)), turn(t, "中", strings.Repeat("长", 4_999)), turn(t, "晚", strings.Repeat("长", 2_998))}
		got := agent.Conversation(results)
		if len(got) != 2 || got[0].Question != "中" || got[1].Question != "晚" {
			t.Fatalf("got %d turns, want the newest two", len(got))
		}
		if n := runes(got); n > agent.MaxConversationRunes {
			t.Errorf("got %d characters, want at most %d", n, agent.MaxConversationRunes)
		}
	})
	t.Run("the newest is cut", func(t *testing.T) {
		t.Parallel()
		got := agent.Conversation([]task.Turn{turn(t, "old", "old"), turn(t, strings.Repeat("问", 66_000), strings.Repeat("答", 9_000))})
		if len(got) != 1 || runes(got) != agent.MaxConversationRunes || !utf8.ValidString(got[0].Question+got[0].Answer) {
			t.Errorf("got %d turns of %d characters, want 1 of %d", len(got), runes(got), agent.MaxConversationRunes)
		}
	})
}

func runes(turns []agent.Turn) (n int) {
	for _, turn := range turns {
		n += utf8.RuneCountInString(turn.Question + turn.Answer)
	}
	return n
}

func TestConversationHoldsAnswersOnly(t *testing.T) {
	t.Parallel()
	got := agent.Conversation([]task.Turn{
		{Task: agent.UpdateTicket, Data: []byte(`{"ticket_id":"TK-1","question":"q"}`)},
		turn(t, "q1", "a1"),
		{Task: agent.RAGQuery, Data: []byte(`{"question":[1]}`)},
		{Task: agent.RAGQuery, Data: []byte(`null`)},
		{Task: agent.RAGQuery},
		turn(t, "q2", "a2"),
	})
	if diff := cmp.Diff([]agent.Turn{{Question: "q1", Answer: "a1"}, {Question: "q2", Answer: "a2"}}, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func TestSearchQuery(t *testing.T) {
	t.Parallel()
	turns := []agent.Turn{{Question: "What is LangGraph?"}, {Question: "How are SQS messages ordered?"}, {Question: "And in FIFO queues?"}}
	tests := map[string]struct {
		question string
		turns    []agent.Turn
		want     string
	}{
		"stands by itself":          {"What is RAG?", turns, "What is RAG?"},
		"begins with and":           {"And deduplication?", turns, "How are SQS messages ordered?\nAnd in FIFO queues?\nAnd deduplication?"},
		"what about":                {"What about DLQs?", turns[:2], "How are SQS messages ordered?\nWhat about DLQs?"},
		"pronoun":                   {"Is it fast?", turns[:1], "What is LangGraph?\nIs it fast?"},
		"says nothing by itself":    {"Why?", turns[:1], "What is LangGraph?\nWhy?"},
		"and as part of a word":     {"Android queues?", turns[:1], "Android queues?"},
		"long, although with it":    {"Does it lose messages when Lambda crashes during a partial batch?", turns[:1], "Does it lose messages when Lambda crashes during a partial batch?"},
		"Chinese":                   {"那 FIFO 呢？", turns[1:2], "How are SQS messages ordered?\n那 FIFO 呢？"},
		"Chinese, stands by itself": {"什么是死信队列？", turns, "什么是死信队列？"},
		"first of its thread":       {"And FIFO?", nil, "And FIFO?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := agent.SearchQuery(tt.question, tt.turns); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
