package retrieval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"agentworker/internal/agent"
	"agentworker/internal/agent/retrieval"
)

func TestQuestionFindsItsDocument(t *testing.T) {
	t.Parallel()
	builtin := retrieval.Builtin()
	tests := []struct{ query, want string }{ // want: "document passage" of the best
		{"What is LangGraph?", "langgraph 1"},
		{"what are LANGGRAPHS", "langgraph 1"},
		{"What is a thread in LangGraph?", "langgraph-checkpoints 2"},
		{"What is RAG?", "rag 1"},
		{"How large can an SQS message be?", "sqs-standard 4"},
		{"Does a FIFO queue keep the order of messages?", "sqs-fifo 1"},
		{"How long is the default visibility timeout?", "visibility-timeout 1"},
		{"What is a dead-letter queue?", "dead-letter-queues 1"},
		{"How do I handle concurrent updates in DynamoDB?", "dynamodb-locking 1"},
		{"How do I enable partial batch responses?", "lambda-batches 3"},
		{"What is an idempotency key?", "idempotency 2"},
		{"What is an agent?", "agents 1"},
		{"什么是 LangGraph？", "langgraph.zh 1"},
		{"什么是ＲＡＧ", "rag.zh 1"},
		{"LangGraph 的检查点有什么用？", "langgraph-checkpoints.zh 1"},
		{"死信队列是什么？", "dead-letter-queues.zh 1"},
		{"可见性超时应该设置多久？", "visibility-timeout.zh 1"},
		{"幂等性有什么好处？", "lambda-idempotency.zh 2"},
		{"乐观锁有缺点吗", "dynamodb-locking.zh 1"}, // three of its pairs stand nowhere
		{"如何防止重复处理消息？", "lambda-idempotency.zh 2"},
		{"智能体有哪些限制", "agents.zh 3"},
		{"乐观锁怎么实现", "dynamodb-locking.zh 1"},
		{"TransactWriteItems 是什么", "dynamodb-locking 3"}, // in English only
	}
	for _, tt := range tests {
		t.Run(tt.query, func(t *testing.T) {
			t.Parallel()
			got := retrieve(t, builtin, tt.query, 3)
			if len(got) == 0 || name(got[0]) != tt.want {
				t.Fatalf("Retrieve(%q): got %q, want %q first", tt.query, names(got), tt.want)
			}
			if got[0].Text == "" || got[0].Title == "" {
				t.Errorf("Retrieve(%q): got %+v, want a text and a title", tt.query, got[0])
			}
			chinese := strings.HasSuffix(got[0].Document, ".zh")
			if slices.ContainsFunc(got, func(p agent.Passage) bool { return strings.HasSuffix(p.Document, ".zh") != chinese }) {
				t.Errorf("Retrieve(%q): got %q, want one language", tt.query, names(got))
			}
		})
	}
}

func TestUnrelatedQuestionFindsNothing(t *testing.T) {
	t.Parallel()
	builtin := retrieval.Builtin()
	for _, query := range []string{
		"What is the capital of France?", "How do I bake bread with a timeout?", "Who won the world cup in 1998?",
		"What is the best message to send on a birthday?", "What is the price of a first class ticket?", "hello", "What is it?",
		"今天天气怎么样？", "今天的消息有哪些？", "这本小说的作者是谁？", "如何删除微信好友", "怎么做红烧肉？", "什么是向量时钟", "谁是美国总统", "你好", "", "   ", "🙂", "Кто такой Пушкин?",
	} {
		if got := retrieve(t, builtin, query, 3); len(got) != 0 {
			t.Errorf("Retrieve(%q): got %q, want nothing", query, names(got))
		}
	}
}

func TestLongQuestionFindsItsDocument(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("Our shop sells shoes, hats and umbrellas to customers all over Scotland. ", 100) +
		"What does the visibility timeout hide from other consumers?"
	got := retrieve(t, retrieval.Builtin(), long, 3)
	if len(got) == 0 || got[0].Document != "visibility-timeout" {
		t.Errorf("got %q, want visibility-timeout first", names(got))
	}
}

func TestNumberOfPassagesIsBounded(t *testing.T) {
	t.Parallel()
	builtin := retrieval.Builtin()
	for _, tt := range []struct{ k, want int }{{-1, 0}, {0, 0}, {1, 1}, {2, 2}} {
		if got := retrieve(t, builtin, "dead-letter queue", tt.k); len(got) != tt.want {
			t.Errorf("k = %d: got %d passages, want %d", tt.k, len(got), tt.want)
		}
	}
}

// A retrieval step's output of up to 1 KB costs one write unit, of more than that two.
func TestThreePassagesStayBelowOneKilobyte(t *testing.T) {
	t.Parallel()
	builtin := retrieval.Builtin()
	for _, query := range []string{"visibility timeout", "dead-letter queue", "LangGraph", "FIFO queue", "agent", "死信队列", "可见性超时", "智能体 工具", "LangGraph 检查点"} {
		got := retrieve(t, builtin, query, 3)
		raw, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || len(raw) > 900 {
			t.Errorf("Retrieve(%q): got %d passages in %d bytes, want some in at most 900", query, len(got), len(raw))
		}
	}
}

func TestEqualQueriesGiveEqualAnswers(t *testing.T) {
	t.Parallel()
	const query = "queue message group order delete receive visibility retry version condition key model tool state"
	want := fmt.Sprint(retrieve(t, retrieval.Builtin(), query, 10))
	shared := retrieval.Builtin()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := fmt.Sprint(retrieve(t, shared, query, 10)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	wg.Wait()
}

func TestCancelledRetrievalStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	index := newIndex(t, []agent.Passage{{Document: "a", Number: 1, Text: "LangGraph"}})
	for name, r := range map[string]agent.Retriever{"index": index, "not loaded yet": retrieval.Builtin()} {
		if got, err := r.Retrieve(ctx, "LangGraph", 3); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, context.Canceled)
		}
	}
}

// More passages than are indexed at once: each is found, also by a term that stands in all of them and one of its own.
func TestManyPassages(t *testing.T) {
	t.Parallel()
	var passages []agent.Passage
	for i := range 3_000 {
		often := strings.Repeat("printer ", i%2)
		passages = append(passages, agent.Passage{Document: fmt.Sprintf("d%d", i), Number: 2, Text: fmt.Sprintf("Printer %snumber%d stands in the cellar.", often, i)})
	}
	index := newIndex(t, passages)
	for i := 0; i < len(passages); i += 97 {
		got := retrieve(t, index, fmt.Sprintf("Where is the printer number%d?", i), 3)
		if len(got) != 1 || got[0] != passages[i] {
			t.Errorf("number%d: got %q, want %q only", i, names(got), name(passages[i]))
		}
	}
	if got := retrieve(t, index, "printers in the cellar", 5); fmt.Sprint(names(got)) != "[d1 2 d3 2 d5 2 d7 2 d9 2]" {
		t.Errorf("a term of all: got %q, want the first five of the best, in their order", names(got))
	}
	if got := retrieve(t, newIndex(t, []agent.Passage{{Document: "a", Number: 1, Text: "what is it?"}, {Document: "b", Number: 1, Text: "…"}}), "what is it?", 3); len(got) != 0 {
		t.Errorf("passages without a term: got %q, want nothing", names(got))
	}
}

// What fits far worse than the best is no help beside it.
func TestMuchWorsePassagesAreLeftOut(t *testing.T) {
	t.Parallel()
	worse := "The printer needs a key " + strings.Repeat("whose colour, weight and age are written on a tag that hangs on the wall ", 10)
	index := newIndex(t, []agent.Passage{
		{Document: "best", Number: 2, Text: "The printer key lies in the cellar."},
		{Document: "good", Number: 2, Text: "A printer key and a cellar."},
		{Document: "worse", Number: 2, Text: worse},
		{Document: "other", Number: 2, Text: "Umbrellas."},
	})
	if got := names(retrieve(t, index, "printer key cellar", 5)); len(got) != 2 || slices.Contains(got, "worse 2") {
		t.Errorf("got %q, want best and good", got)
	}
	if got := names(retrieve(t, index, "printer key", 5)); len(got) == 0 || slices.Contains(got, "other 2") {
		t.Errorf("got %q, want those with a printer", got)
	}
	if got := names(retrieve(t, index, "printer key colour weight age tag", 5)); len(got) == 0 || got[0] != "worse 2" {
		t.Errorf("got %q, want the worse one where it is the best", got)
	}
}

func TestEmptyIndexFindsNothing(t *testing.T) {
	t.Parallel()
	if got := retrieve(t, newIndex(t, nil), "LangGraph", 3); len(got) != 0 {
		t.Errorf("got %q, want nothing", names(got))
	}
}

func retrieve(t testing.TB, r agent.Retriever, query string, k int) []agent.Passage {
	t.Helper()
	got, err := r.Retrieve(t.Context(), query, k)
	if err != nil {
		t.Errorf("Retrieve(%q): %v", query, err)
	}
	return got
}

func name(p agent.Passage) string { return fmt.Sprintf("%s %d", p.Document, p.Number) }

func names(passages []agent.Passage) []string {
	var out []string
	for _, p := range passages {
		out = append(out, name(p))
	}
	return out
}

func newIndex(t testing.TB, passages []agent.Passage) *retrieval.Index {
	t.Helper()
	x, err := retrieval.New(passages)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
