package drill_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"

	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/drill/fastclock"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
	emulatorsqs "agentworker/internal/emulator/sqs"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
	"agentworker/internal/worker"
)

// plant is queue, mapping, worker and table in this process: thousands of invocations cost no process each.
type plant struct {
	sqs      *sqs.Client
	queueURL string
	store    *checkpoint.Store
	timeout  time.Duration
	types    *task.Registry

	deliveries, invocations, failed atomic.Int64
	abandoned                       sync.WaitGroup
}

// process is one worker process.
type process struct {
	ctx  context.Context
	died context.CancelCauseFunc
}

var errDied = errors.New("the process has died")

// die ends the process as kill -9 does: nothing that it would still do takes effect.
func (p process) die() { p.died(errDied) }

// processKey finds the process that a handler runs in.
type processKey struct{}

func processOf(ctx context.Context) process { return ctx.Value(processKey{}).(process) }

const queueName, queueARN = "tasks", "arn:aws:sqs:us-east-1:000000000000:tasks"

// newPlant runs until the test ends. The queue's clock runs ten times as fast as real time.
func newPlant(t *testing.T, definition task.Type, timeout time.Duration, batchSize int) *plant {
	t.Helper()
	server, err := emulatorsqs.Open(emulatorsqs.Options{Clock: fastclock.New(10, time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(server)
	t.Cleanup(front.Close)
	t.Cleanup(func() { _ = server.Close() }) // ends the long polls first
	httpClient := awsclient.HTTPClient(0)
	t.Cleanup(httpClient.CloseIdleConnections)
	p := &plant{timeout: timeout, sqs: sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &front.URL, HTTPClient: httpClient,
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})}
	visibility := 12 * timeout / time.Second // a little more than the timeout, on this clock
	out, err := p.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(queueName), Attributes: map[string]string{
		"VisibilityTimeout": fmt.Sprint(int(visibility)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.queueURL = aws.ToString(out.QueueUrl)
	client := dynamodbtest.New(t)
	p.store = checkpoint.New(client, dynamodbtest.Table(t, client), checkpoint.Options{})
	if p.types, err = task.NewRegistry(definition); err != nil {
		t.Fatal(err)
	}
	m, err := mapping.New(mapping.Config{
		QueueURL: p.queueURL, QueueARN: queueARN, BatchSize: batchSize, BatchingWindow: window(batchSize), MaximumConcurrency: 30,
		ReportBatchItemFailures: true, Function: p, SQS: p.sqs, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		p.abandoned.Wait()
	})
	return p
}

func window(batchSize int) time.Duration {
	if batchSize > 10 {
		return time.Second
	}
	return 0
}

// Invoke runs a worker as a process of its own, until it answers, dies, or its time is up.
func (p *plant) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	var event events.SQSEvent
	if err := json.Unmarshal(payload, &event); err != nil {
		return lambda.Result{}, err
	}
	p.invocations.Add(1)
	p.deliveries.Add(int64(len(event.Records)))
	ctx, died := context.WithCancelCause(ctx)
	defer died(nil)
	ctx, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	self := process{ctx: ctx, died: died}
	w := worker.New(worker.Config{
		Tasks: p.types, Store: mortalStore{p.store, self}, Queue: mortalQueue{p.sqs, self},
		Logger: slog.New(slog.DiscardHandler), Metrics: telemetry.NewMetrics("drill", io.Discard),
		QueueURLs: []string{p.queueURL}, Retries: 3, MaxReceiveCount: 100, PartialBatch: true,
	})
	type end struct {
		answer []byte
		err    error
	}
	ended := make(chan end, 1)
	p.abandoned.Go(func() {
		answer, err := w.Invoke(context.WithValue(ctx, processKey{}, self), payload)
		ended <- end{answer, err}
	})
	select {
	case e := <-ended:
		if e.err == nil && self.alive() == nil {
			return lambda.Result{Payload: e.answer}, nil
		}
	case <-ctx.Done():
	}
	p.failed.Add(1)
	return lambda.Result{FunctionError: "Unhandled"}, nil
}

func (p process) alive() error {
	if errors.Is(context.Cause(p.ctx), errDied) {
		return errDied
	}
	return nil
}

// mortalStore and mortalQueue are closed to a dead process.
type mortalStore struct {
	*checkpoint.Store
	process
}

func (s mortalStore) Commit(ctx context.Context, c checkpoint.Commit) (checkpoint.Committed, error) {
	if err := s.alive(); err != nil {
		return checkpoint.Committed{}, err
	}
	return s.Store.Commit(ctx, c)
}

func (s mortalStore) End(ctx context.Context, r checkpoint.Record, e checkpoint.End) error {
	if err := s.alive(); err != nil {
		return err
	}
	return s.Store.End(ctx, r, e)
}

type mortalQueue struct {
	*sqs.Client
	process
}

func (q mortalQueue) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	if err := q.alive(); err != nil {
		return nil, err
	}
	return q.Client.ChangeMessageVisibility(ctx, in, opts...)
}

// send puts n tasks on the queue and gives their ids.
func (p *plant) send(t *testing.T, n int, body func(i int, id task.ID) string) []task.ID {
	t.Helper()
	ids := make([]task.ID, n)
	for from := 0; from < n; from += 10 {
		in := &sqs.SendMessageBatchInput{QueueUrl: &p.queueURL}
		for i := from; i < min(from+10, n); i++ {
			ids[i] = task.NewID(fmt.Sprintf("th-%d", i%400), time.Now())
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(body(i, ids[i]))})
		}
		if out, err := p.sqs.SendMessageBatch(t.Context(), in); err != nil || len(out.Failed) > 0 {
			t.Fatalf("send: %v, %d failed", err, len(out.Failed))
		}
	}
	return ids
}

// drain waits until the queue is empty. What empties it works beside the test, which can only ask.
func (p *plant) drain(t *testing.T) {
	t.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := p.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &p.queueURL, AttributeNames: []types.QueueAttributeName{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		if out.Attributes["ApproximateNumberOfMessages"] == "0" && out.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0" {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("after five minutes %s messages are left and %s in flight", out.Attributes["ApproximateNumberOfMessages"], out.Attributes["ApproximateNumberOfMessagesNotVisible"])
		}
	}
}

// tool is something outside that honours effect keys: the same key has one effect and gets the same answer.
type tool struct {
	mu      sync.Mutex
	calls   map[string]int    // by key
	answers map[string]string // by key
	naive   int               // effects that a tool without keys would have had
}

func newTool() *tool { return &tool{calls: map[string]int{}, answers: map[string]string{}} }

// call gives the answer and how often the key has been called, this time included.
func (o *tool) call(key string) (answer string, times int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.naive++
	o.calls[key]++
	if o.calls[key] == 1 {
		o.answers[key] = fmt.Sprintf("run-%d", len(o.answers)+1)
	}
	return o.answers[key], o.calls[key]
}
