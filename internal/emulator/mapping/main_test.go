package mapping_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	standardARN = "arn:aws:sqs:eu-central-1:123456789012:tasks"
	fifoARN     = "arn:aws:sqs:eu-central-1:123456789012:ordered.fifo"
)

// queue behaves as SQS does: visibility, receive counts, long polls, groups that are locked while a message is in flight,
// handles that are good for one receive.
type queue struct {
	visibility time.Duration
	fifo       bool

	mu       sync.Mutex
	changed  chan struct{}
	messages []*stored
	deletes  int   // calls
	receives int   // that brought something
	sizes    []int // of the delete calls
	released []string

	// Faults.
	failDelete  func(call int, entry types.DeleteMessageBatchRequestEntry) *types.BatchResultErrorEntry
	failCall    func(call int) error
	failReceive func() error
}

type stored struct {
	id, body, group, trace, handle string
	count                          int
	sent, visible                  time.Time
	deleted                        bool
}

func newQueue(fifo bool, visibility time.Duration) *queue {
	return &queue{fifo: fifo, visibility: visibility, changed: make(chan struct{})}
}

func (q *queue) send(messages ...*stored) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, msg := range messages {
		msg.sent = time.Now()
		q.messages = append(q.messages, msg)
	}
	q.wake()
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// left returns "id×count" of each message that is not deleted, in order.
func (q *queue) left() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var left []string
	for _, msg := range q.messages {
		if !msg.deleted {
			left = append(left, fmt.Sprintf("%s×%d", msg.id, msg.count))
		}
	}
	return strings.Join(left, " ")
}

func (q *queue) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return &sqs.GetQueueAttributesOutput{Attributes: map[string]string{"VisibilityTimeout": strconv.Itoa(int(q.visibility.Seconds()))}}, nil
}

func (q *queue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if in.MaxNumberOfMessages < 1 || in.MaxNumberOfMessages > 10 || in.WaitTimeSeconds < 0 || in.WaitTimeSeconds > 20 {
		return nil, fmt.Errorf("ReadCountOutOfRange: %d messages, %d s", in.MaxNumberOfMessages, in.WaitTimeSeconds)
	}
	end := time.Now().Add(time.Duration(in.WaitTimeSeconds) * time.Second)
	for {
		q.mu.Lock()
		if q.failReceive != nil {
			if err := q.failReceive(); err != nil {
				q.mu.Unlock()
				return nil, err
			}
		}
		found, next := q.take(int(in.MaxNumberOfMessages))
		changed := q.changed
		q.mu.Unlock()
		if len(found) > 0 || !time.Now().Before(end) {
			return &sqs.ReceiveMessageOutput{Messages: found}, ctx.Err()
		}
		if next.IsZero() || next.After(end) {
			next = end
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

func (q *queue) take(most int) (found []types.Message, next time.Time) {
	now := time.Now()
	locked := map[string]bool{}
	if q.fifo {
		for _, msg := range q.messages {
			if !msg.deleted && msg.visible.After(now) {
				locked[msg.group] = true
			}
		}
	}
	for _, msg := range q.messages {
		if msg.deleted {
			continue
		}
		if msg.visible.After(now) {
			if next.IsZero() || msg.visible.Before(next) {
				next = msg.visible
			}
			continue
		}
		if locked[msg.group] || len(found) == most {
			continue
		}
		msg.count++
		msg.visible = now.Add(q.visibility)
		msg.handle = fmt.Sprintf("%s/%d", msg.id, msg.count)
		attributes := map[string]string{
			"ApproximateReceiveCount": strconv.Itoa(msg.count), "SentTimestamp": strconv.FormatInt(msg.sent.UnixMilli(), 10),
		}
		if msg.group != "" {
			attributes["MessageGroupId"] = msg.group
		}
		if msg.trace != "" {
			attributes["AWSTraceHeader"] = msg.trace
		}
		found = append(found, types.Message{MessageId: aws.String(msg.id), ReceiptHandle: aws.String(msg.handle), Body: aws.String(msg.body), Attributes: attributes})
	}
	if len(found) > 0 {
		q.receives++
	}
	return found, next
}

// unaccounted is the code of an entry that stands in neither list of the answer.
const unaccounted = "unaccounted"

func (q *queue) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deletes++
	q.sizes = append(q.sizes, len(in.Entries))
	if q.failCall != nil {
		if err := q.failCall(q.deletes); err != nil {
			return nil, err
		}
	}
	if len(in.Entries) < 1 || len(in.Entries) > 10 {
		return nil, fmt.Errorf("TooManyEntriesInBatchRequest: %d", len(in.Entries))
	}
	out := &sqs.DeleteMessageBatchOutput{}
	for _, entry := range in.Entries {
		if q.failDelete != nil {
			if failed := q.failDelete(q.deletes, entry); failed != nil {
				if *failed.Code == unaccounted {
					continue
				}
				told := *failed // which may be the same one for each queue
				told.Id = entry.Id
				out.Failed = append(out.Failed, told)
				continue
			}
		}
		for _, msg := range q.messages {
			if msg.handle == *entry.ReceiptHandle { // an old handle deletes nothing, and that is no error
				msg.deleted = true
			}
		}
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: entry.Id})
	}
	q.wake()
	return out, nil
}

func (q *queue) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(in.Entries) < 1 || len(in.Entries) > 10 {
		return nil, fmt.Errorf("TooManyEntriesInBatchRequest: %d", len(in.Entries))
	}
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	for _, entry := range in.Entries {
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: entry.Id})
		for _, msg := range q.messages {
			if msg.handle == *entry.ReceiptHandle {
				msg.visible = time.Now().Add(time.Duration(entry.VisibilityTimeout) * time.Second)
				q.released = append(q.released, msg.id)
			}
		}
	}
	q.wake()
	return out, nil
}

// function is an Invoker that gets the decoded records.
type function func(ctx context.Context, records []record) (lambda.Result, error)

type record struct {
	MessageID  string            `json:"messageId"`
	Body       string            `json:"body"`
	Attributes map[string]string `json:"attributes"`
}

func (f function) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	var event struct {
		Records []record `json:"Records"`
	}
	if err := json.Unmarshal(payload, &event); err != nil {
		return lambda.Result{}, err
	}
	if len(payload) > lambda.MaxPayload {
		return lambda.Result{}, lambda.ErrPayloadTooLarge
	}
	return f(ctx, event.Records)
}

func names(records []record) string {
	var all []string
	for _, r := range records {
		all = append(all, r.MessageID)
	}
	return strings.Join(all, " ")
}

// log keeps what happened, in order.
type log struct {
	mu     sync.Mutex
	lines  []string
	events []mapping.Event
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) observe(e mapping.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func (l *log) outcomes() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, e := range l.events {
		all = append(all, string(e.Outcome))
	}
	return strings.Join(all, " ")
}

// run starts a mapping. The returned func ends it and waits; it is also called at the end of the test.
func run(t *testing.T, q mapping.SQSAPI, f mapping.Invoker, change func(*mapping.Config)) (*mapping.Mapping, *log, func()) {
	t.Helper()
	l := &log{}
	config := mapping.Config{
		QueueURL: "http://127.0.0.1:4566/123456789012/tasks", QueueARN: standardARN, FunctionTimeout: 10 * time.Second,
		ReportBatchItemFailures: true, MaximumConcurrency: 10, Function: f, SQS: q, Observe: l.observe,
		Logger: slog.New(slog.DiscardHandler),
	}
	if fake, ok := q.(*queue); ok && fake.fifo {
		config.QueueURL, config.QueueARN = "http://127.0.0.1:4566/123456789012/ordered.fifo", fifoARN
	}
	if change != nil {
		change(&config)
	}
	m, err := mapping.New(config)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return m, l, stop
}

func msg(id string) *stored { return &stored{id: id, body: "body of " + id} }

func grouped(group, id string) *stored { return &stored{id: id, body: id, group: group} }
