package worker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json"

	"agentworker/internal/agent"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
	"agentworker/internal/worker"
)

// BenchmarkInvoke is a batch's whole way through the worker, with a table and a model that answer at once. What the SDK adds
// to a request is not part of it.
func BenchmarkInvoke(b *testing.B) {
	for _, size := range []int{10, 1000} {
		b.Run(fmt.Sprintf("records=%d", size), func(b *testing.B) {
			w, payload := instant(b), queries(b, size)
			b.ReportAllocs()
			for b.Loop() {
				mustSucceed(b, w, payload)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/record")
		})
	}
}

// Allocations stand for a task's processor time, of which a test cannot say anything on a busy machine. Whoever needs more of
// them for a reason raises the number. The race detector's own allocations are why there are two.
func TestAllocationsPerTask(t *testing.T) {
	const size, budget, budgetWithRaceDetector = 10, 1720, 1890
	w, payload := instant(t), queries(t, size)
	got := testing.AllocsPerRun(50, func() { mustSucceed(t, w, payload) }) / size
	want := float64(budget)
	if raceDetector {
		want = budgetWithRaceDetector
	}
	t.Logf("%.0f allocations a task", got)
	if got > want {
		t.Errorf("%.0f allocations a task, want %.0f at most", got, want)
	}
}

// instant is the worker over a table that answers at once.
func instant(tb testing.TB) *worker.Worker {
	tb.Helper()
	store := checkpoint.New(newInstantTable(tb), "table", checkpoint.Options{})
	types, err := task.NewRegistry(agent.Types(agent.Config{Retriever: retrieval.Builtin(), Model: model.Offline{}, Tickets: store})...)
	if err != nil {
		tb.Fatal(err)
	}
	return worker.New(worker.Config{
		Tasks: types, Store: store, Queue: &queue{}, Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)),
		Metrics: telemetry.NewMetrics("test", io.Discard), QueueURLs: []string{queueURL}, Retries: 3, MaxReceiveCount: 5, PartialBatch: true,
	})
}

// queries is the event of a batch of questions in threads of their own.
func queries(tb testing.TB, n int) []byte {
	tb.Helper()
	var event events.SQSEvent
	for i := range n {
		id := task.NewID(fmt.Sprintf("th-%d", i), time.Now())
		m := message(id, "")
		m.Body = fmt.Sprintf(`{"task":"rag_query","task_id":%q,"question":"What is a dead-letter queue?"}`, id)
		event.Records = append(event.Records, m)
	}
	payload, err := json.Marshal(event)
	if err != nil {
		tb.Fatal(err)
	}
	return payload
}

func mustSucceed(tb testing.TB, w *worker.Worker, payload []byte) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	const nothing = `{"batchItemFailures":[]}`
	if answer, err := w.Invoke(ctx, payload); err != nil || string(answer) != nothing {
		tb.Fatalf("answer %s, error %v, want %s", answer, err, nothing)
	}
}

// instantTable has every task unclaimed and every thread 20 turns old, and remembers nothing.
type instantTable struct {
	checkpoint.API // what is not called
	turns          []map[string]types.AttributeValue
}

func newInstantTable(tb testing.TB) *instantTable {
	tb.Helper()
	answer := strings.Repeat("It takes messages that could not be processed. ", 6)
	table := &instantTable{}
	for n := 20; n > 0; n-- {
		data := fmt.Sprintf(`{"question":"What is a dead-letter queue?","answer":%q,"citations":[],"model":"offline"}`, answer)
		table.turns = append(table.turns, map[string]types.AttributeValue{
			"sk": text(fmt.Sprintf("checkpoint#%020d", n)), "task_id": text("th-1.01K00000000000000000000000"), "task": text("rag_query"),
			"step": text("generate"), "last": &types.AttributeValueMemberBOOL{Value: true}, "data": text(data),
			"updated_at": text("2026-11-29T00:00:00.000Z"), "expires_at": &types.AttributeValueMemberN{Value: "4102444800"},
		})
	}
	return table
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// UpdateItem answers a claim.
func (*instantTable) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	pk, _ := in.Key["pk"].(*types.AttributeValueMemberS)
	sk, _ := in.Key["sk"].(*types.AttributeValueMemberS)
	id := strings.TrimPrefix(pk.Value, "thread#") + "." + strings.TrimPrefix(sk.Value, "history#")
	return &dynamodb.UpdateItemOutput{Attributes: map[string]types.AttributeValue{
		"pk": pk, "sk": sk, "task_id": text(id), "task": text("rag_query"), "status": text("running"), "message_id": text("m"),
		"fence": &types.AttributeValueMemberN{Value: "1"}, "submitted_at": text("2026-11-29T00:00:00.000Z"),
		"attempts": &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberM{Value: map[string]types.AttributeValue{
			"started_at": text("2026-11-29T00:00:00.000Z"), "message_id": text("m"),
		}}}},
	}}, nil
}

func (i *instantTable) Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return &dynamodb.QueryOutput{Items: i.turns}, nil
}

func (*instantTable) TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return &dynamodb.TransactWriteItemsOutput{}, nil
}
