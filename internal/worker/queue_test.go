package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jonboulle/clockwork"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
	"agentworker/internal/emulator/sqs"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// chain is a worker behind a real mapping on a real local queue, whose clock the test moves.
type chain struct {
	*fixture
	sqs        *awssqs.Client
	clock      *clockwork.FakeClock
	queue, dlq string // URLs
	server     *sqs.Server
	batches    chan mapping.Event
	ran        *ledger
}

// ledger is what the handlers did, in order.
type ledger struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func (l *ledger) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func startChain(t *testing.T, fifo bool, batchSize int, do script) *chain {
	t.Helper()
	c := &chain{clock: clockwork.NewFakeClockAt(time.Now()), batches: make(chan mapping.Event, 1000), ran: &ledger{more: make(chan struct{}, 1)}}
	var err error
	if c.server, err = sqs.Open(sqs.Options{Clock: c.clock}); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(c.server)
	t.Cleanup(func() { _ = c.server.Close(); front.Close() })
	c.sqs = awssqs.New(awssqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(front.URL), Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	suffix, attributes := "", map[string]string{"VisibilityTimeout": "360"}
	if fifo {
		suffix = ".fifo"
		attributes["FifoQueue"], attributes["ContentBasedDeduplication"] = "true", "true"
	}
	var dlqARN, queueARN string
	c.dlq, dlqARN = c.create(t, "tasks-dlq"+suffix, attributes)
	attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":5}`, dlqARN)
	c.queue, queueARN = c.create(t, "tasks"+suffix, attributes)

	c.fixture = setUp(t, do, func(w *worker.Config) { w.Queue, w.QueueURLs = c.sqs, []string{c.queue} })
	m, err := mapping.New(mapping.Config{
		QueueURL: c.queue, QueueARN: queueARN, BatchSize: batchSize, MaximumConcurrency: 4, ReportBatchItemFailures: true,
		FunctionTimeout: time.Minute, Function: invoker{c.fixture}, SQS: c.sqs, Logger: c.Logger,
		Observe: func(e mapping.Event) { c.batches <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("mapping: %v", err)
		}
	})
	return c
}

func (c *chain) create(t *testing.T, name string, attributes map[string]string) (url, arn string) {
	t.Helper()
	out, err := c.sqs.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: out.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.QueueUrl), got.Attributes["QueueArn"]
}

// invoker calls the worker the way Lambda does, with JSON both ways.
type invoker struct{ f *fixture }

func (i invoker) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	var event events.SQSEvent
	if err := json.Unmarshal(payload, &event); err != nil {
		return lambda.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := invoke(ctx, i.f, event)
	if err != nil {
		return lambda.Result{FunctionError: "Unhandled", Payload: []byte(`{}`)}, nil
	}
	answer, err := json.Marshal(out)
	return lambda.Result{Payload: answer}, err
}

// send puts a task of the type "test" on the queue, in a group when it is a FIFO queue.
func (c *chain) send(t *testing.T, do, group string) task.ID {
	t.Helper()
	id := task.NewID("th-1", time.Now())
	in := &awssqs.SendMessageInput{QueueUrl: &c.queue, MessageBody: aws.String(fmt.Sprintf(`{"task":"test","task_id":%q,"do":%q}`, id, do))}
	if group != "" {
		in.MessageGroupId = &group
	}
	if _, err := c.sqs.SendMessage(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return id
}

// until waits for a condition that a batch, a handler or the passing of queue time brings about.
func (c *chain) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !ok() {
		select {
		case <-c.batches:
		case <-c.ran.more:
		case <-time.After(50 * time.Millisecond): // nothing is under way: only time can help
			c.clock.Advance(time.Second)
		case <-limit.C:
			t.Fatalf("waited in vain for %s; handlers ran %v", what, c.ran.all())
		}
	}
}

func (c *chain) statusIs(t *testing.T, id task.ID, status checkpoint.Status) func() bool {
	t.Helper()
	return func() bool {
		rec, err := c.store.Record(t.Context(), id)
		return err == nil && rec.Status == status
	}
}

func (c *chain) depth(t *testing.T, url string) int {
	t.Helper()
	out, err := c.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"} {
		count, err := strconv.Atoi(out.Attributes[name])
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// logging is a script whose tasks note what they do; "fail…" fails.
func logging(c **chain) script {
	fail := func(name string) func(context.Context, task.Run) (string, error) {
		return func(context.Context, task.Run) (string, error) {
			(*c).ran.add(name)
			return "", errors.New("no")
		}
	}
	note := func(name string) func(context.Context, task.Run) (string, error) {
		return func(context.Context, task.Run) (string, error) {
			(*c).ran.add(name)
			return name, nil
		}
	}
	return script{"fail": fail("fail"), "second": note("second"), "third": note("third"), "other": note("other")}
}

// While the head of a group fails and backs off nothing behind it runs, and other groups go on; when the head is
// dead-lettered the next ones run, in order.
//
// Case: FIFO order
func TestOrderHoldsWhileTheHeadFails(t *testing.T) {
	t.Parallel()
	for _, batchSize := range []int{1, 10} {
		t.Run(fmt.Sprint("batch size ", batchSize), func(t *testing.T) {
			t.Parallel()
			var c *chain
			c = startChain(t, true, batchSize, logging(&c))
			head := c.send(t, "fail", "g1")
			second, third := c.send(t, "second", "g1"), c.send(t, "third", "g1")
			other := c.send(t, "other", "g2")
			c.until(t, "the other group", c.statusIs(t, other, checkpoint.Succeeded))
			c.until(t, "the head to fail", c.statusIs(t, head, checkpoint.Failed))
			c.until(t, "the third", c.statusIs(t, third, checkpoint.Succeeded))
			c.until(t, "the head's dead letter", func() bool { return c.depth(t, c.dlq) == 1 })
			want := []string{"fail", "fail", "fail", "fail", "second", "third"}
			got := slices.DeleteFunc(c.ran.all(), func(s string) bool { return s == "other" })
			if !slices.Equal(got, want) {
				t.Errorf("ran %v, want %v", got, want)
			}
			for _, id := range []task.ID{second, third} {
				rec := c.record(t, id)
				if len(rec.Attempts) != 1 || rec.Attempts[0].StartedAt.Before(c.record(t, head).UpdatedAt) {
					t.Errorf("attempts of task %s are %+v, want one, begun after the head was given up", id, rec.Attempts)
				}
			}
		})
	}
}

// With one record a batch those behind a failing head are not even delivered while it fails.
func TestAFailingHeadCostsThoseBehindItNoDelivery(t *testing.T) {
	t.Parallel()
	var c *chain
	c = startChain(t, true, 1, logging(&c))
	c.send(t, "fail", "g1")
	second := c.send(t, "second", "g1")
	c.until(t, "the second", c.statusIs(t, second, checkpoint.Succeeded))
	c.until(t, "its log line", func() bool { return strings.Contains(c.log.String(), "task_id="+string(second)) })
	for line := range strings.Lines(c.log.String()) {
		if strings.Contains(line, string(second)) && !strings.Contains(line, "receive=1 ") {
			t.Errorf("the second was delivered more than once: %s", line)
		}
	}
}

// A redrive out of the dead-letter queue gives messages new ids: a failed task runs again and its status follows, one
// that had succeeded is acknowledged without effect.
//
// Case: DLQ and status (a redrive)
func TestARedriveRunsWhatFailedAndOnlyThat(t *testing.T) {
	t.Parallel()
	var c *chain
	mended := make(chan struct{})
	c = startChain(t, false, 10, script{"fail": func(context.Context, task.Run) (string, error) {
		c.ran.add("fail")
		select {
		case <-mended:
			return "mended", nil
		default:
			return "", task.Failf("BROKEN", "not yet")
		}
	}, "succeed": func(context.Context, task.Run) (string, error) {
		c.ran.add("succeed")
		return "", nil
	}})
	failed, succeeded := c.send(t, "fail", ""), c.send(t, "succeed", "")
	c.until(t, "the dead letter", func() bool { return c.depth(t, c.dlq) == 1 })
	c.until(t, "the success", c.statusIs(t, succeeded, checkpoint.Succeeded))
	c.wantStatus(t, failed, checkpoint.Failed, "BROKEN")
	// A copy of the message that succeeded, as a lost acknowledgement would leave in the dead-letter queue.
	if _, err := c.sqs.SendMessage(t.Context(), &awssqs.SendMessageInput{
		QueueUrl: &c.dlq, MessageBody: aws.String(fmt.Sprintf(`{"task":"test","task_id":%q,"do":"succeed"}`, succeeded)),
	}); err != nil {
		t.Fatal(err)
	}
	close(mended)
	attributes, err := c.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: &c.dlq, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatal(err)
	}
	arn := attributes.Attributes["QueueArn"]
	if _, err := c.sqs.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{
		SourceArn: &arn, DestinationArn: aws.String(arn[:len(arn)-len("-dlq")]),
	}); err != nil {
		t.Fatal(err)
	}
	c.until(t, "the redriven task", c.statusIs(t, failed, checkpoint.Succeeded))
	c.until(t, "both queues to be empty", func() bool { return c.depth(t, c.dlq) == 0 && c.depth(t, c.queue) == 0 })
	rec := c.record(t, failed)
	if len(rec.Attempts) != 2 || rec.Attempts[0].MessageID == rec.Attempts[1].MessageID {
		t.Errorf("attempts are %+v, want two under different message ids", rec.Attempts)
	}
	if got := c.ran.all(); !slices.Equal(got, []string{"fail", "succeed", "fail"}) && !slices.Equal(got, []string{"succeed", "fail", "fail"}) {
		t.Errorf("ran %v, want the failing task twice and the other once", got)
	}
	if rec := c.record(t, succeeded); len(rec.Attempts) != 1 {
		t.Errorf("the succeeded task has %d attempts, want 1", len(rec.Attempts))
	}
}

// SQS refuses to hide a message for longer than 12 hours from its receipt on, and would then bring it back after its visibility
// timeout, hours before the service that was asked takes requests again.
func TestTheLongestPauseIsOneThatSQSGrants(t *testing.T) {
	t.Parallel()
	var c *chain
	c = startChain(t, false, 10, script{"quota": func(context.Context, task.Run) (string, error) {
		c.clock.Advance(5 * time.Minute) // within the visibility timeout
		return "", task.RetryAfter(errors.New("come back tomorrow"), 24*time.Hour)
	}})
	id := c.send(t, "quota", "")
	c.until(t, "the batch's end", func() bool { return strings.Contains(c.metrics.String(), "TasksRetried") })
	if log := c.log.String(); strings.Contains(log, "visibility not changed") {
		t.Errorf("SQS did not grant the pause:\n%s", log)
	}
	rec := c.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
	if pause := rec.NextRetryAt.Sub(rec.UpdatedAt); pause < task.MaxDelay-time.Minute || pause > task.MaxDelay+time.Minute {
		t.Errorf("the next try comes after %v, want %v", pause, task.MaxDelay)
	}
}
