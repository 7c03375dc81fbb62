package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// A task costs the same in a new thread and after a thousand turns, and as little as is documented.
func TestCostDoesNotGrowWithTheConversation(t *testing.T) {
	t.Parallel()
	proxy, client := meter(t)
	table := dynamodbtest.Table(t, dynamodbtest.New(t))
	store := checkpoint.New(client, table, checkpoint.Options{})
	types, err := task.NewRegistry(append(
		agent.Types(agent.Config{Retriever: retrieval.Builtin(), Model: model.Offline{}, Tickets: store}), testType(nil))...)
	if err != nil {
		t.Fatal(err)
	}
	f := setUp(t, nil, func(c *worker.Config) { c.Store, c.Tasks = store, types })
	f.store = store

	query := func() cost {
		id, m := newTask("")
		m.Body = fmt.Sprintf(`{"task":"rag_query","task_id":%q,"question":"What is a dead-letter queue?"}`, id)
		return proxy.measure(func() { wantFailed(t, f.handle(t, m)) })
	}
	first := query()
	fill(t, store, 1000)
	later := query()
	t.Logf("at turn 1: %v; after 1,000 turns: %v", first, later)

	want := []string{"Query", "TransactWriteItems", "UpdateItem"}
	for name, c := range map[string]cost{"turn 1": first, "turn 1,000": later} {
		if !slices.Equal(c.requests, want) {
			t.Errorf("requests at %s are %v, want %v", name, c.requests, want)
		}
	}
	if growth := math.Abs(float64(later.written-first.written)) / float64(first.written); growth > 0.1 {
		t.Errorf("%d bytes written at turn 1 and %d at turn 1,000, want them within 10 %%", first.written, later.written)
	}
	// 1 unit at the claim, 6 in the commit of three small items.
	if first.writeUnits != 7 || later.writeUnits != 7 {
		t.Errorf("%v write units at turn 1 and %v at turn 1,000, want 7", first.writeUnits, later.writeUnits)
	}

	// A task of one step: 1 unit at submit, 1 at the claim, 6 in the commit of three small items.
	id, m := newTask("one step")
	submit := proxy.measure(func() {
		if _, created, err := store.Create(t.Context(), task.Message{Task: "test", ID: id, Thread: "th-1"}, time.Now()); err != nil || !created {
			t.Errorf("create: %v, %v", created, err)
		}
	})
	run := proxy.measure(func() { wantFailed(t, f.handle(t, m)) })
	if submit.writeUnits != 1 || run.writeUnits != 1+6 {
		t.Errorf("%v write units at submit and %v in the worker, want 1 and 7", submit.writeUnits, run.writeUnits)
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

// cost is what reached DynamoDB.
type cost struct {
	requests   []string // by operation, sorted
	written    int      // bytes of write requests
	writeUnits float64
}

// counter is a proxy that counts what passes.
type counter struct {
	backend string
	mu      sync.Mutex
	cost
}

func meter(t *testing.T) (*counter, *dynamodb.Client) {
	t.Helper()
	c := &counter{backend: dynamodbtest.Endpoint(t)}
	server := httptest.NewServer(c)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return c, dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

func (c *counter) measure(do func()) cost {
	c.mu.Lock()
	c.cost = cost{}
	c.mu.Unlock()
	do()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.requests)
	return c.cost
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := c.forward(r.Context(), r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body)
}

type answer struct {
	status int
	body   []byte
}

func (c *counter) forward(ctx context.Context, r *http.Request) (answer, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return answer{}, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(body, &fields); err != nil {
		return answer{}, err
	}
	fields["ReturnConsumedCapacity"] = jsontext.Value(`"TOTAL"`)
	asked, err := json.Marshal(fields)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.backend, bytes.NewReader(asked))
	if err != nil {
		return answer{}, err
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Content-Length")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, operation)
	if operation != "Query" && operation != "GetItem" {
		c.written += len(body)
		c.writeUnits += units(got)
	}
	return answer{res.StatusCode, got}, nil
}

// units adds up the capacity in an answer, which is one object or a list.
func units(body []byte) float64 {
	type consumed struct{ CapacityUnits, WriteCapacityUnits float64 }
	var one struct{ ConsumedCapacity consumed }
	if json.Unmarshal(body, &one) == nil {
		return one.ConsumedCapacity.CapacityUnits
	}
	var many struct{ ConsumedCapacity []consumed }
	if json.Unmarshal(body, &many) != nil {
		return 0
	}
	sum := 0.0
	for _, c := range many.ConsumedCapacity {
		sum += c.CapacityUnits
	}
	return sum
}
