package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
	"agentworker/internal/worker"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

const (
	queueURL   = "http://sqs.test/000000000000/tasks"
	orderedURL = "http://sqs.test/000000000000/tasks.fifo"
	queueARN   = "arn:aws:sqs:us-east-1:000000000000:tasks"
	orderedARN = "arn:aws:sqs:us-east-1:000000000000:tasks.fifo"
)

// script is what the test type's handler does, by the message's "do".
type script map[string]func(ctx context.Context, run task.Run) (string, error)

type input struct {
	Do string `json:"do"`
}

// fixture is a worker over a table of its own, with the type "test" and a queue that remembers what it was told.
type fixture struct {
	*worker.Worker
	store   *checkpoint.Store
	queue   *queue
	log     *lockedBuffer
	metrics *lockedBuffer
}

func setUp(t *testing.T, do script, change ...func(*worker.Config)) *fixture {
	t.Helper()
	client := dynamodbtest.New(t)
	f := &fixture{
		store: checkpoint.New(client, dynamodbtest.Table(t, client), checkpoint.Options{}),
		queue: &queue{after: map[string][]int32{}}, log: &lockedBuffer{}, metrics: &lockedBuffer{},
	}
	types, err := task.NewRegistry(testType(do))
	if err != nil {
		t.Fatal(err)
	}
	c := worker.Config{
		Tasks: types, Store: f.store, Queue: f.queue,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)), Metrics: telemetry.NewMetrics("test", f.metrics),
		QueueURLs: []string{queueURL, orderedURL}, Retries: 3, MaxReceiveCount: 5, PartialBatch: true,
	}
	for _, fn := range change {
		fn(&c)
	}
	f.Worker = worker.New(c)
	return f
}

func testType(do script) task.Type {
	return task.Definition[input, string]{
		Name: "test",
		Run: func(ctx context.Context, run task.Run, in input) (string, error) {
			fn, ok := do[in.Do]
			if !ok {
				return "done " + in.Do, nil
			}
			return fn(ctx, run)
		},
	}.Type()
}

// message is a delivery of a task of the type "test" on the standard queue.
func message(id task.ID, do string) events.SQSMessage {
	return events.SQSMessage{
		MessageId: "m-" + id.ULID(), ReceiptHandle: "r-" + id.ULID(), EventSourceARN: queueARN,
		Body: fmt.Sprintf(`{"task":"test","task_id":%q,"do":%q}`, id, do),
		Attributes: map[string]string{
			"ApproximateReceiveCount": "1", "SentTimestamp": strconv.FormatInt(time.Now().UnixMilli(), 10),
		},
	}
}

func newTask(do string) (task.ID, events.SQSMessage) {
	id := task.NewID("th-1", time.Now())
	return id, message(id, do)
}

// again is the same message, delivered once more.
func again(m events.SQSMessage) events.SQSMessage {
	n, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	m.Attributes = map[string]string{"ApproximateReceiveCount": strconv.Itoa(n + 1), "SentTimestamp": m.Attributes["SentTimestamp"]}
	return m
}

// handle hands a batch to the worker, with a minute's time, and gives the ids that failed.
func (f *fixture) handle(t *testing.T, messages ...events.SQSMessage) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return f.handleIn(ctx, t, messages...)
}

func (f *fixture) handleIn(ctx context.Context, t *testing.T, messages ...events.SQSMessage) []string {
	t.Helper()
	out, err := invoke(ctx, f, events.SQSEvent{Records: messages})
	if err != nil {
		t.Fatal(err)
	}
	failed := []string{}
	for _, b := range out.BatchItemFailures {
		failed = append(failed, b.ItemIdentifier)
	}
	return failed
}

// invoke hands a worker an event the way Lambda does, as text.
func invoke(ctx context.Context, w lambda.Handler, event events.SQSEvent) (events.SQSEventResponse, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return events.SQSEventResponse{}, err
	}
	out, err := w.Invoke(ctx, payload)
	if err != nil {
		return events.SQSEventResponse{}, err
	}
	var response events.SQSEventResponse
	err = json.Unmarshal(out, &response)
	return response, err
}

func (f *fixture) record(t *testing.T, id task.ID) checkpoint.Record {
	t.Helper()
	rec, err := f.store.Record(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (f *fixture) wantStatus(t *testing.T, id task.ID, status checkpoint.Status, code string) checkpoint.Record {
	t.Helper()
	rec := f.record(t, id)
	got := ""
	if rec.Error != nil {
		got = rec.Error.Code
	}
	if rec.Status != status || got != code {
		t.Errorf("task is %s with reason %q, want %s with %q", rec.Status, got, status, code)
	}
	return rec
}

func (f *fixture) result(t *testing.T, id task.ID) string {
	t.Helper()
	rec := f.record(t, id)
	cp, err := f.store.Checkpoint(t.Context(), id.Thread(), rec.ResultN)
	if err != nil {
		t.Fatalf("result of %s: %v", id, err)
	}
	return string(cp.Data)
}

func wantFailed(t *testing.T, got []string, want ...events.SQSMessage) {
	t.Helper()
	ids := []string{}
	for _, m := range want {
		ids = append(ids, m.MessageId)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("the batch's failures are %v, want %v", got, ids)
	}
}

// queue remembers the visibility timeouts that it was asked for, by receipt handle.
type queue struct {
	mu    sync.Mutex
	after map[string][]int32
	fail  atomic.Bool
}

func (q *queue) ChangeMessageVisibility(_ context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	if q.fail.Load() {
		return nil, errors.New("SQS is away")
	}
	q.note(aws.ToString(in.ReceiptHandle), in.VisibilityTimeout)
	return &sqs.ChangeMessageVisibilityOutput{}, nil
}

func (q *queue) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	if q.fail.Load() {
		return nil, errors.New("SQS is away")
	}
	if len(in.Entries) > 10 {
		return nil, errors.New("too many entries")
	}
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	for _, e := range in.Entries {
		q.note(aws.ToString(e.ReceiptHandle), e.VisibilityTimeout)
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func (q *queue) note(handle string, after int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.after[handle] = append(q.after[handle], after)
}

// wantAfter checks that the message was told once to come back between low and high seconds from now.
func (q *queue) wantAfter(t *testing.T, m events.SQSMessage, low, high int32) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	got := q.after[m.ReceiptHandle]
	if len(got) != 1 || got[0] < low || got[0] > high {
		t.Errorf("visibility timeouts of %s are %v, want one of %d to %d s", m.MessageId, got, low, high)
	}
	delete(q.after, m.ReceiptHandle)
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// step runs a step that gives text and counts its runs.
func step(ctx context.Context, run task.Run, name string, runs *atomic.Int64) (string, error) {
	return task.Step(ctx, run, name, func(context.Context, *task.Effects) (string, error) {
		runs.Add(1)
		return name, nil
	})
}

func eventOf(messages ...events.SQSMessage) events.SQSEvent {
	return events.SQSEvent{Records: messages}
}

// incompressible is text of about n bytes of which compression saves little.
func incompressible(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + rand.N(90))
	}
	return string(b)
}
