package dlqalarm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/dlqalarm"
	"agentworker/internal/task"
)

// sweepIn calls the handler by its schedule, some time from now.
func (b *bench) sweepIn(d time.Duration) (dlqalarm.Summary, error) {
	b.Helper()
	now := time.Now().Add(d)
	b.config.Store, b.config.Now = b.storeAt(now), func() time.Time { return now }
	return dlqalarm.New(b.config).Handle(b.Context(), []byte(sweep))
}

func (b *bench) lostIn(d time.Duration) []task.ID {
	b.Helper()
	s, err := b.sweepIn(d)
	if err != nil {
		b.Fatalf("Handle: %v", err)
	}
	slices.Sort(s.Lost)
	return s.Lost
}

// queued records a task whose message nobody sends.
func (b *bench) queued(thread string) task.ID {
	b.Helper()
	m, err := b.config.Tasks.New("echo", members(b, `{"text":"secret words","thread_id":"`+thread+`"}`), time.Now())
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := b.store.Create(b.Context(), m, time.Now()); err != nil {
		b.Fatal(err)
	}
	return m.ID
}

func TestATaskWhoseMessageWasNeverSentDoesNotStayQueued(t *testing.T) {
	t.Parallel()
	b := start(t)
	id := b.queued("th-1")
	running := b.claim(task.NewID("th-2", time.Now()), "m-1", time.Minute).TaskID

	if got := b.lostIn(time.Hour); got != nil {
		t.Errorf("given up within the time of a delivery: %v, want none", got)
	}
	want := []task.ID{id, running}
	if got := b.lostIn(2*time.Hour + 20*time.Minute); !slices.Equal(got, want) {
		t.Fatalf("given up with nothing on the queues: %v, want %v", got, want)
	}
	rec := b.record(id)
	if rec.Status != checkpoint.Failed || rec.Error.Code != task.CodeMessageLost || !rec.NeverSent() {
		t.Errorf("the record: %s for %+v, want failed for %s, and known as never sent", rec.Status, rec.Error, task.CodeMessageLost)
	}
	if rec := b.record(running); rec.Status != checkpoint.Failed || !strings.Contains(rec.Error.Message, "after attempt 1") || rec.NeverSent() {
		t.Errorf("the other's record: %s for %+v, want failed after attempt 1", rec.Status, rec.Error)
	}
	subject, body := b.topic.last()
	if subject != "2 tasks without a message: MESSAGE_LOST" || !strings.Contains(body, string(id)) || !strings.Contains(body, "was running since") {
		t.Errorf("published %q:\n%s\nwant both tasks named", subject, body)
	}
	if strings.Contains(b.logs.String(), "secret") || !strings.Contains(b.logs.String(), string(id)) {
		t.Errorf("logged:\n%s\nwant the ids and no content", b.logs.String())
	}
	if got := b.lostIn(6 * time.Hour); got != nil {
		t.Errorf("given up again: %v, want nothing twice", got)
	}
	b.wantPublished(1)
}

// While anything is on a queue it may be any task's message: then only what is older than messages live is given up.
func TestNothingIsGivenUpWhileItsMessageMayLive(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]bool{"waiting": false, "in flight": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			id := b.queued("th-1")
			b.put(b.source, `{"task":"echo"}`, "")
			if hide {
				b.receiveOne(b.source)
			}
			if got := b.lostIn(6 * 24 * time.Hour); got != nil {
				t.Errorf("given up after six days: %v, want none", got)
			}
			if got, want := b.lostIn(8*24*time.Hour), []task.ID{id}; !slices.Equal(got, want) {
				t.Errorf("given up after eight days: %v, want %v", got, want)
			}
		})
	}
}

// Of a group of a FIFO queue a look shows the first ten messages: the tasks behind them are not lost.
func TestNothingIsGivenUpThatMayLieUnseenAmongDeadLetters(t *testing.T) {
	t.Parallel()
	b := start(t)
	for range 10 {
		b.put(b.ordered, `{"task":"echo"}`, "group")
	}
	id := b.queued("th-1")
	b.put(b.ordered, `{"task":"echo","task_id":"`+string(id)+`","text":"hello","thread_id":"th-1"}`, "group")
	if got := b.lostIn(3 * time.Hour); got != nil {
		t.Errorf("given up with its message among the dead letters: %v, want none", got)
	}
	// The queues here keep messages for seven and, the dead letters, for four days.
	if got := b.lostIn(10 * 24 * time.Hour); got != nil {
		t.Errorf("given up after ten days: %v, want none", got)
	}
	if got, want := b.lostIn(12*24*time.Hour), []task.ID{id}; !slices.Equal(got, want) {
		t.Errorf("given up after twelve days: %v, want %v", got, want)
	}
}

// moving dead-letters the source's message as soon as the dead-letter queue has been looked at.
type moving struct {
	dlq.API
	b    *bench
	body string
	once sync.Once
}

func (m *moving) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out, err := m.API.ReceiveMessage(ctx, in, opts...)
	if err == nil && *in.QueueUrl == m.b.url && len(out.Messages) == 0 {
		m.once.Do(func() {
			moved := m.b.receiveOne(m.b.source)
			m.b.put(m.b.url, m.body, "")
			_, err = m.b.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &m.b.source, ReceiptHandle: moved.ReceiptHandle})
		})
	}
	return out, err
}

func TestNothingIsGivenUpThatIsDeadLetteredJustNow(t *testing.T) {
	t.Parallel()
	b := start(t)
	id := b.queued("th-1")
	body := `{"task":"echo","task_id":"` + string(id) + `","text":"hello","thread_id":"th-1"}`
	b.put(b.source, body, "")
	b.config.SQS = &moving{API: b.config.SQS, b: b, body: body}
	if got := b.lostIn(3 * time.Hour); got != nil {
		t.Errorf("given up while its message went to the dead-letter queue: %v, want none", got)
	}
	if rec := b.record(id); rec.Status != checkpoint.Queued {
		t.Errorf("the task is %s, want it queued until the next look", rec.Status)
	}
}

// That a dead letter's record could not be written just then does not mean that its message is lost.
func TestNothingIsGivenUpThatLiesUnrecordedAmongDeadLetters(t *testing.T) {
	t.Parallel()
	b := start(t)
	letter, _ := b.submit("echo", "there")
	lost := b.queued("th-1")
	now := time.Now().Add(3 * time.Hour)
	broken := errors.New("the table does not answer")
	b.config.Store, b.config.Now = &brokenStore{Store: b.storeAt(now), id: letter.ID, err: broken}, func() time.Time { return now }
	s, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(sweep))
	if !errors.Is(err, broken) || s.Lost != nil {
		t.Errorf("given up with a message among the dead letters: %v (%v), want none", s.Lost, err)
	}
	if rec := b.record(letter.ID); rec.Status != checkpoint.Queued {
		t.Errorf("the task is %s, want it queued until it can be recorded", rec.Status)
	}
	if got, want := b.lostIn(4*time.Hour+20*time.Minute), []task.ID{lost}; !slices.Equal(got, want) {
		t.Errorf("given up when it could: %v, want %v", got, want)
	}
	if rec := b.record(letter.ID); rec.Status != checkpoint.Failed || rec.Error.Code != task.CodeDeadLettered {
		t.Errorf("the dead letter's task: %s for %+v, want failed for %s", rec.Status, rec.Error, task.CodeDeadLettered)
	}
}

// An alarm looks at its queue; only the schedule searches the table.
func TestOnlyTheScheduleSearches(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.queued("th-1")
	now := time.Now().Add(24 * time.Hour)
	b.config.Store, b.config.Now = b.storeAt(now), func() time.Time { return now }
	if s := b.handle(alarm(queueName, "ALARM", "OK", moment)); s.Lost != nil {
		t.Errorf("given up at an alarm: %v, want none", s.Lost)
	}
}

// pages makes each page of the table one record long.
type pages struct {
	dlqalarm.Store
	rest []checkpoint.Record
}

func (p *pages) Unfinished(ctx context.Context, before time.Time, from checkpoint.SweepKey) ([]checkpoint.Record, checkpoint.SweepKey, error) {
	if from == (checkpoint.SweepKey{}) {
		var err error
		if p.rest, _, err = p.Store.Unfinished(ctx, before, from); err != nil {
			return nil, from, err
		}
	}
	if len(p.rest) == 0 {
		return nil, checkpoint.SweepKey{}, nil
	}
	page := p.rest[:1]
	p.rest = p.rest[1:]
	return page, checkpoint.SweepKey{PK: "thread#" + page[0].TaskID.Thread(), SK: "history#" + page[0].TaskID.ULID()}, nil
}

// A table too large for one call is searched over several, each from where the one before has ended.
func TestTheSearchOfALargeTableIsSpreadOverCalls(t *testing.T) {
	t.Parallel()
	b := start(t)
	var want, got []task.ID
	for range 20 {
		want = append(want, b.queued("th-1"))
	}
	slices.Sort(want)
	p := &pages{}
	calls := 0
	for range 3 {
		now := time.Now().Add(3 * time.Hour)
		p.Store = b.storeAt(now)
		b.config.Store, b.config.Now = p, func() time.Time { return now }
		s := b.handle(sweep)
		got = append(got, s.Lost...)
		if len(s.Lost) > 0 {
			calls++
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || calls != 3 {
		t.Errorf("%d tasks given up in %d calls, want %d in 3", len(got), calls, len(want))
	}
}

// noAttributes cannot say what the source queue holds.
type noAttributes struct {
	dlq.API
	url string
}

func (n noAttributes) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, opts ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	if *in.QueueUrl == n.url {
		return nil, errors.New("no answer")
	}
	return n.API.GetQueueAttributes(ctx, in, opts...)
}

func TestNothingIsGivenUpWhileTheQueuesAreUnknown(t *testing.T) {
	t.Parallel()
	b := start(t)
	id := b.queued("th-1")
	b.config.SQS = noAttributes{b.config.SQS, b.source}
	if s, err := b.sweepIn(30 * 24 * time.Hour); err == nil || s.Lost != nil {
		t.Errorf("got %v, %v, want an error and nothing given up", s.Lost, err)
	}
	if rec := b.record(id); rec.Status != checkpoint.Queued {
		t.Errorf("the task is %s, want it queued", rec.Status)
	}
}

// Between two sweeps nobody asks what the source queues hold.
func TestTheQueuesAreCountedForASweepOnly(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.lostIn(3 * time.Hour)
	b.config.SQS = noAttributes{b.config.SQS, b.source}
	if _, err := b.sweepIn(3*time.Hour + 5*time.Minute); err != nil {
		t.Errorf("five minutes after a sweep: %v, want no error", err)
	}
	if _, err := b.sweepIn(5 * time.Hour); err == nil {
		t.Error("two hours after it: got no error, want the source queue's")
	}
}

// What one page gave is told, although the next could not be read.
func TestTasksGivenUpBeforeAnErrorAreTold(t *testing.T) {
	t.Parallel()
	b := start(t)
	id := b.queued("th-1")
	now := time.Now().Add(3 * time.Hour)
	p := &pages{Store: b.storeAt(now)}
	b.config.Store, b.config.Now = &secondFails{p}, func() time.Time { return now }
	s, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(sweep))
	if err == nil || !slices.Equal(s.Lost, []task.ID{id}) {
		t.Errorf("got %v, %v, want %v and an error", s.Lost, err, id)
	}
	b.wantPublished(1)
}

type secondFails struct{ *pages }

func (s *secondFails) Unfinished(ctx context.Context, before time.Time, from checkpoint.SweepKey) ([]checkpoint.Record, checkpoint.SweepKey, error) {
	if from != (checkpoint.SweepKey{}) {
		return nil, from, errors.New("the table does not answer")
	}
	return s.pages.Unfinished(ctx, before, from)
}
