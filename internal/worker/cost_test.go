package worker_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/emulator/dynamodb/meter"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// A task costs the same in a new thread and after a thousand turns, and as little as is documented.
func TestCostDoesNotGrowWithTheConversation(t *testing.T) {
	t.Parallel()
	dynamo, client := metered(t)
	table := dynamodbtest.Table(t, dynamodbtest.New(t))
	store := checkpoint.New(client, table, checkpoint.Options{})
	types, err := task.NewRegistry(append(
		agent.Types(agent.Config{Retriever: retrieval.Builtin(), Model: model.Offline{}, Tickets: store}), testType(nil))...)
	if err != nil {
		t.Fatal(err)
	}
	f := setUp(t, nil, func(c *worker.Config) { c.Store, c.Tasks = store, types })
	f.store = store

	query := func() meter.Usage {
		id, m := newTask("")
		m.Body = fmt.Sprintf(`{"task":"rag_query","task_id":%q,"question":"What is a dead-letter queue?"}`, id)
		return dynamo.Measure(func() { wantFailed(t, f.handle(t, m)) })
	}
	first := query()
	fill(t, store, 1000)
	later := query()
	t.Logf("at turn 1: %v; after 1,000 turns: %v", first, later)

	want := map[string]int{"Query": 1, "TransactWriteItems": 1, "UpdateItem": 1}
	for name, c := range map[string]meter.Usage{"turn 1": first, "turn 1,000": later} {
		if !maps.Equal(c.Requests, want) {
			t.Errorf("requests at %s are %v, want %v", name, c.Requests, want)
		}
	}
	if growth := math.Abs(float64(later.Written-first.Written)) / float64(first.Written); growth > 0.1 {
		t.Errorf("%d bytes written at turn 1 and %d at turn 1,000, want them within 10 %%", first.Written, later.Written)
	}
	// What a task may cost; whoever needs more for a reason raises the numbers. Of the thread 20 checkpoints are read at most.
	const mostBytes, mostReadUnits = 4700, 5
	if most := max(first.Written, later.Written); most > mostBytes {
		t.Errorf("%d bytes written, want %d at most", most, mostBytes)
	}
	if later.ReadUnits > mostReadUnits {
		t.Errorf("%v read units at turn 1,000, want %d at most", later.ReadUnits, mostReadUnits)
	}
	// 1 unit at the claim, 6 in the commit of three small items.
	if first.WriteUnits != 7 || later.WriteUnits != 7 {
		t.Errorf("%v write units at turn 1 and %v at turn 1,000, want 7", first.WriteUnits, later.WriteUnits)
	}

	// A task of one step: 1 unit at submit, 1 at the claim, 6 in the commit of three small items.
	id, m := newTask("one step")
	submit := dynamo.Measure(func() {
		if _, created, err := store.Create(t.Context(), task.Message{Task: "test", ID: id, Thread: "th-1"}, time.Now()); err != nil || !created {
			t.Errorf("create: %v, %v", created, err)
		}
	})
	run := dynamo.Measure(func() { wantFailed(t, f.handle(t, m)) })
	if submit.WriteUnits != 1 || run.WriteUnits != 1+6 {
		t.Errorf("%v write units at submit and %v in the worker, want 1 and 7", submit.WriteUnits, run.WriteUnits)
	}
}

// fill adds n finished turns to the thread.
func fill(t *testing.T, store *checkpoint.Store, n int) {
	t.Helper()
	latest, err := store.Latest(t.Context(), "th-1", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	newest := latest[0].N
	for range n {
		rec, err := store.Claim(t.Context(), checkpoint.ClaimRequest{
			ID: task.NewID("th-1", time.Now()), Task: "rag_query", MessageID: "m", SentAt: time.Now(), Owner: "o", Until: time.Now().Add(time.Minute),
		})
		if err != nil {
			t.Fatal(err)
		}
		done, err := store.Commit(t.Context(), checkpoint.Commit{
			Record: rec, Newest: newest, Step: "generate", Last: true,
			Data: jsontext.Value(`{"question":"What is a dead-letter queue?","answer":"It takes messages that could not be processed."}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		newest = done.N
	}
}

// metered opens a meter in front of the tests' DynamoDB, and a client whose requests it counts.
func metered(t *testing.T) (*meter.Meter, *dynamodb.Client) {
	t.Helper()
	m, err := meter.Listen(t.Context(), dynamodbtest.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(m.URL()), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}
