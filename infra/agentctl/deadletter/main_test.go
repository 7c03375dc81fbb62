package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jonboulle/clockwork"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	emulator "agentworker/internal/emulator/sqs"
	"agentworker/internal/task"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

// bench is a queue with its dead-letter queue in a local SQS, over a real table.
type bench struct {
	*testing.T
	server *emulator.Server
	wire   *wire
	store  *checkpoint.Store
	config deadletter.Config
	name   string // of the dead-letter queue
}

func start(t *testing.T, fifo bool) *bench {
	t.Helper()
	return startAt(t, fifo, clockwork.NewRealClock())
}

// startAt has SQS go by a clock: what it moves by itself it has moved by then.
func startAt(t *testing.T, fifo bool, clock clockwork.Clock) *bench {
	t.Helper()
	server, err := emulator.Open(emulator.Options{Clock: clock})
	if err != nil {
		t.Fatalf("open SQS: %v", err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", clock.Now().UTC().Format(http.TimeFormat))
		server.ServeHTTP(w, r)
	}))
	calls := awsclient.HTTPClient(0)
	t.Cleanup(func() {
		calls.CloseIdleConnections()
		web.Close()
		if err := server.Close(); err != nil {
			t.Errorf("close SQS: %v", err)
		}
	})
	client := dynamodbtest.New(t)
	b := &bench{
		T: t, server: server, store: checkpoint.New(client, dynamodbtest.Table(t, client), checkpoint.Options{}), name: "tasks-dlq",
		wire: &wire{Client: sqs.New(sqs.Options{
			Region: "us-east-1", BaseEndpoint: &web.URL, HTTPClient: calls, RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		})},
	}
	attributes, source := map[string]string{}, "tasks"
	if fifo {
		b.name, source = b.name+".fifo", source+".fifo"
		attributes["FifoQueue"] = "true"
	}
	b.config = deadletter.Config{
		DeadLetterURL: b.create(b.name, attributes), Tasks: registry(t), Store: b.store, SQS: b.wire,
		Logger: slog.New(slog.DiscardHandler), Hide: 3 * time.Second, Settle: time.Millisecond, Pause: 10 * time.Millisecond,
	}
	attributes["RedrivePolicy"] = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:` + b.name + `","maxReceiveCount":"5"}`
	b.config.URL = b.create(source, attributes)
	return b
}

func registry(t testing.TB) *task.Registry {
	t.Helper()
	type input struct {
		Text string `json:"text"`
	}
	run := func(context.Context, task.Run, input) (string, error) { return "", nil }
	r, err := task.NewRegistry(
		task.Definition[input, string]{Name: "echo", Run: run}.Type(),
		task.Definition[input, string]{Name: "shout", Run: run}.Type())
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	return r
}

func (b *bench) create(name string, attributes map[string]string) string {
	b.Helper()
	out, err := b.wire.CreateQueue(b.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		b.Fatalf("create queue %s: %v", name, err)
	}
	return aws.ToString(out.QueueUrl)
}

func (b *bench) queue() *deadletter.Queue { return deadletter.New(b.config) }

// letter is a dead letter of the test's.
type letter struct {
	id        task.ID
	messageID string
}

// dead puts a task's message into the dead-letter queue; its record says that it failed with the code, "": it says queued,
// since no worker ever saw it.
func (b *bench) dead(taskType, thread, code string) letter {
	b.Helper()
	id := task.NewID(thread, time.Now())
	m := task.Message{Task: taskType, ID: id, Thread: thread}
	if _, _, err := b.store.Create(b.Context(), m, time.Now()); err != nil {
		b.Fatalf("create task: %v", err)
	}
	l := letter{id, b.put(fmt.Sprintf(`{"task":%q,"task_id":%q,"text":"hello"}`, taskType, id), thread)}
	if code != "" {
		b.fail(b.claim(l), code)
	}
	return l
}

// put sends a body to the dead-letter queue and gives the message's id.
func (b *bench) put(body, group string) string {
	b.Helper()
	in := &sqs.SendMessageInput{
		QueueUrl: &b.config.DeadLetterURL, MessageBody: &body, MessageGroupId: &group,
		MessageAttributes: map[string]types.MessageAttributeValue{
			"priority": {DataType: aws.String("Number"), StringValue: aws.String("7")},
			"blob":     {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 255}},
		},
	}
	if b.name == "tasks-dlq.fifo" {
		in.MessageDeduplicationId = aws.String(task.NewID("d", time.Now()).ULID())
	}
	out, err := b.wire.Client.SendMessage(b.Context(), in)
	if err != nil {
		b.Fatalf("send: %v", err)
	}
	return aws.ToString(out.MessageId)
}

func (b *bench) claim(l letter) checkpoint.Record {
	b.Helper()
	rec, err := b.store.Claim(b.Context(), checkpoint.ClaimRequest{
		ID: l.id, Task: "echo", MessageID: l.messageID, SentAt: time.Now(),
		Owner: string(task.NewID("owner", time.Now())), Until: time.Now().Add(time.Minute),
	})
	if err != nil {
		b.Fatalf("claim %s: %v", l.id, err)
	}
	return rec
}

func (b *bench) fail(rec checkpoint.Record, code string) {
	b.Helper()
	end := checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: code, Message: "it said \x1b[2Jno"}}
	if err := b.store.End(b.Context(), rec, end); err != nil {
		b.Fatalf("end attempt of %s: %v", rec.TaskID, err)
	}
}

func (b *bench) succeed(rec checkpoint.Record) {
	b.Helper()
	if _, err := b.store.Commit(b.Context(), checkpoint.Commit{Record: rec, Step: "answer", Data: []byte(`"x"`), Last: true}); err != nil {
		b.Fatalf("commit: %v", err)
	}
}

func (b *bench) record(id task.ID) checkpoint.Record {
	b.Helper()
	rec, err := b.store.Record(b.Context(), id)
	if err != nil {
		b.Fatalf("record of %s: %v", id, err)
	}
	return rec
}

// work is a worker: it takes everything off the queue and runs it, with success unless the code of a failure is given. It
// returns the tasks in the order of their messages, those included that there was nothing to run of.
func (b *bench) work(code string) (ids []task.ID) {
	b.Helper()
	for {
		out, err := b.wire.Client.ReceiveMessage(b.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &b.config.URL, MaxNumberOfMessages: 10,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			b.Fatalf("receive: %v", err)
		}
		if len(out.Messages) == 0 {
			return ids
		}
		for _, m := range out.Messages {
			msg, err := b.config.Tasks.Decode([]byte(*m.Body), *m.MessageId, time.Now())
			if err != nil {
				b.Fatalf("decode: %v", err)
			}
			ids = append(ids, msg.ID)
			rec, err := b.store.Claim(b.Context(), checkpoint.ClaimRequest{
				ID: msg.ID, Task: msg.Task, MessageID: *m.MessageId, SentAt: time.Now(),
				Owner: string(task.NewID("owner", time.Now())), Until: time.Now().Add(time.Minute),
			})
			switch {
			case errors.Is(err, checkpoint.ErrSucceeded):
			case err != nil:
				b.Fatalf("claim %s: %v", msg.ID, err)
			case code != "":
				b.fail(rec, code)
			default:
				b.succeed(rec)
			}
			if _, err := b.wire.Client.DeleteMessage(b.Context(), &sqs.DeleteMessageInput{QueueUrl: &b.config.URL, ReceiptHandle: m.ReceiptHandle}); err != nil {
				b.Fatalf("delete: %v", err)
			}
		}
	}
}

// keepWorking has a worker beside the test, until it is stopped; then the queue is empty.
func (b *bench) keepWorking(code string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			b.work(code)
			select {
			case <-tick.C:
			case <-quit:
				b.work(code)
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// keepDeadLettering has a worker beside the test that fails every task for good, so that SQS moves its message to the dead-letter
// queue, until it is stopped; then the queue is empty.
func (b *bench) keepDeadLettering(code string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for stopping := false; ; {
			out, err := b.wire.Client.ReceiveMessage(b.Context(), &sqs.ReceiveMessageInput{QueueUrl: &b.config.URL, MaxNumberOfMessages: 10})
			if err != nil {
				b.Errorf("receive: %v", err)
				return
			}
			for _, m := range out.Messages {
				b.failOnce(m, code)
			}
			switch {
			case len(out.Messages) > 0:
			case stopping:
				return
			default:
				select {
				case <-quit:
					stopping = true
				case <-time.After(5 * time.Millisecond):
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// failOnce fails the message's task, if that has not failed yet, and gives the message back.
func (b *bench) failOnce(m types.Message, code string) {
	msg, err := b.config.Tasks.Decode([]byte(*m.Body), *m.MessageId, time.Now())
	if err != nil {
		b.Errorf("decode: %v", err)
		return
	}
	rec, err := b.store.Claim(b.Context(), checkpoint.ClaimRequest{
		ID: msg.ID, Task: msg.Task, MessageID: *m.MessageId, SentAt: time.Now(),
		Owner: string(task.NewID("owner", time.Now())), Until: time.Now().Add(time.Minute),
	})
	if err == nil {
		err = b.store.End(b.Context(), rec, checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: code, Message: "no"}})
	} else if errors.Is(err, checkpoint.ErrFailed) {
		err = nil
	}
	if err != nil {
		b.Errorf("fail %s: %v", msg.ID, err)
	}
	_, err = b.wire.ChangeMessageVisibility(b.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &b.config.URL, ReceiptHandle: m.ReceiptHandle})
	if err != nil {
		b.Errorf("give back: %v", err)
	}
}

// wantDead checks how many messages lie in the dead-letter queue, and that none of them is hidden.
func (b *bench) wantDead(want int) {
	b.Helper()
	visible, hidden, _, _ := b.server.Depth(b.name)
	if visible != want || hidden != 0 {
		b.Errorf("%s: got %d visible and %d hidden messages, want %d and 0", b.name, visible, hidden, want)
	}
}

// awaitDead waits until the dead-letter queue holds that many messages, hidden ones too: a worker beside the test puts them there.
func (b *bench) awaitDead(ctx context.Context, want int) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		visible, hidden, _, _ := b.server.Depth(b.name)
		if visible+hidden >= want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Errorf("%s: got %d visible and %d hidden messages, want %d in all", b.name, visible, hidden, want)
			return
		}
	}
}

func (b *bench) redrive(s deadletter.Selection, o deadletter.RedriveOptions) deadletter.Report {
	b.Helper()
	r, err := b.queue().Redrive(b.Context(), s, o)
	if err != nil {
		b.Fatalf("Redrive: %v", err)
	}
	return r
}

// wire is the way to SQS. It counts the copies that arrive there, and breaks as the test wants it to.
type wire struct {
	*sqs.Client
	// before and after are asked about a call by its name and the message's id or body; an error is its answer, although
	// with after it took effect.
	before, after func(call, what string) error

	mu   sync.Mutex
	sent []*sqs.SendMessageInput
	ids  map[string]bool // message ids of the copies: to a FIFO queue the same one may be sent twice
}

func (w *wire) at(hook func(call, what string) error, call, what string) error {
	if hook == nil {
		return nil
	}
	return hook(call, what)
}

func (w *wire) SendMessage(ctx context.Context, in *sqs.SendMessageInput, o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if err := w.at(w.before, "send", *in.MessageBody); err != nil {
		return nil, err
	}
	out, err := w.Client.SendMessage(ctx, in, o...)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if id := *out.MessageId; !w.ids[id] {
		if w.ids == nil {
			w.ids = map[string]bool{}
		}
		w.ids[id] = true
		w.sent = append(w.sent, in)
	}
	w.mu.Unlock()
	if err := w.at(w.after, "send", *in.MessageBody); err != nil {
		if errors.Is(err, errGarbled) {
			out.MD5OfMessageBody = aws.String("0123")
			return out, nil
		}
		return nil, err
	}
	return out, nil
}

func (w *wire) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, o ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	if err := w.at(w.before, "delete", ""); err != nil {
		return nil, err
	}
	return w.Client.DeleteMessage(ctx, in, o...)
}

func (w *wire) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if err := w.at(w.before, "receive", ""); err != nil {
		return nil, err
	}
	if in.WaitTimeSeconds == 0 {
		return nil, errors.New("a receive without long polling may miss messages")
	}
	short := *in
	short.WaitTimeSeconds = 0 // left out by the SDK; the test's queues have no wait of their own
	return w.Client.ReceiveMessage(ctx, &short, o...)
}

func (w *wire) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, o ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	if err := w.at(w.before, "depth", *in.QueueUrl); errors.Is(err, errLag) {
		return &sqs.GetQueueAttributesOutput{}, nil
	} else if err != nil {
		return nil, err
	}
	return w.Client.GetQueueAttributes(ctx, in, o...)
}

func (w *wire) StartMessageMoveTask(ctx context.Context, in *sqs.StartMessageMoveTaskInput, o ...func(*sqs.Options)) (*sqs.StartMessageMoveTaskOutput, error) {
	out, err := w.Client.StartMessageMoveTask(ctx, in, o...)
	if err == nil {
		err = w.at(w.after, "move", *in.SourceArn)
	}
	return out, err
}

func (w *wire) ListMessageMoveTasks(ctx context.Context, in *sqs.ListMessageMoveTasksInput, o ...func(*sqs.Options)) (*sqs.ListMessageMoveTasksOutput, error) {
	if err := w.at(w.before, "moves", *in.SourceArn); err != nil {
		return nil, err
	}
	return w.Client.ListMessageMoveTasks(ctx, in, o...)
}

func (w *wire) CancelMessageMoveTask(ctx context.Context, in *sqs.CancelMessageMoveTaskInput, o ...func(*sqs.Options)) (*sqs.CancelMessageMoveTaskOutput, error) {
	if err := w.at(w.before, "cancel", *in.TaskHandle); err != nil {
		return nil, err
	}
	return w.Client.CancelMessageMoveTask(ctx, in, o...)
}

// copies counts the copies by task.
func (w *wire) copies(t testing.TB, r *task.Registry) map[task.ID]int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[task.ID]int{}
	for _, in := range w.sent {
		m, err := r.Decode([]byte(*in.MessageBody), "m", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		counts[m.ID]++
	}
	return counts
}

var (
	errGarbled = errors.New("the answer is garbled")
	errLost    = errors.New("the connection was cut")
	errLag     = errors.New("the counts say nothing yet")
)
