package dlqalarm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlqalarm"
)

func TestNothingIsSaidTwice(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	event := alarm(queueName, "ALARM", "OK", moment)
	b.handle(event)
	b.handle(event) // Lambda may deliver it again
	b.handle(sweep)
	b.handle(`{}`)
	b.wantPublished(1)
}

// CloudWatch calls on changes of state only: while it is in ALARM, further dead letters are the schedule's to find.
func TestASecondDeadLetterIsReportedByTheSchedule(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	b.handle(alarm(queueName, "ALARM", "OK", moment))
	b.submit("echo", "second")
	b.handle(sweep)
	b.wantPublished(2)
	if subject, _ := b.topic.last(); !strings.HasPrefix(subject, "2 dead letters in agent-tasks-dlq") {
		t.Errorf("subject: got %q, want both dead letters in it", subject)
	}
	b.handle(sweep)
	b.wantPublished(2)
}

func TestALetterThatHasGoneIsNoNews(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	b.submit("echo", "second")
	b.handle(sweep)
	gone := b.receiveOne(b.url)
	if _, err := b.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &b.url, ReceiptHandle: gone.ReceiptHandle}); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if got := b.handle(sweep); got.Queues[0].Seen != 1 || got.Published {
		t.Errorf("got %+v, want one message and no notification", got)
	}
	b.wantPublished(1)
}

func TestAStandingDeadLetterIsRepeatedAfterADay(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	b.handle(sweep)
	tomorrow := time.Now().Add(25 * time.Hour)
	b.config.Now = func() time.Time { return tomorrow }
	b.config.Store = b.storeAt(tomorrow)
	b.handle(sweep)
	b.wantPublished(2)
	if _, body := b.topic.last(); !strings.Contains(body, "the oldest 25h") {
		t.Errorf("body lacks the age of 25 hours:\n%s", body)
	}
}

func TestAnAlarmSaysOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	b.handle(alarm(queueName, "ALARM", "OK", moment))
	b.handle(alarm(queueName, "ALARM", "OK", later)) // it ended in between because the look hid the message
	b.wantPublished(1)
	b.submit("echo", "second")
	b.handle(alarm(queueName, "ALARM", "OK", later))
	b.wantPublished(2)
}

// That the record of a message is not to be had just then is told of a new message only.
func TestAnUnavailableRecordAloneIsNoNews(t *testing.T) {
	t.Parallel()
	b := start(t)
	told, _ := b.submit("echo", "told")
	b.handle(alarm(queueName, "ALARM", "OK", moment))
	b.wantPublished(1)

	broken := errors.New("the table does not answer")
	b.config.Store = &brokenStore{Store: b.store, id: told.ID, err: broken}
	look := func(want int) {
		t.Helper()
		if _, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(sweep)); !errors.Is(err, broken) {
			t.Errorf("error: got %v, want %v", err, broken)
		}
		b.wantPublished(want)
	}
	look(1)
	fresh, _ := b.submit("echo", "fresh")
	b.config.Store = &brokenStore{Store: b.store, id: fresh.ID, err: broken}
	look(2)
}

func TestEmptyQueuesAreNotTold(t *testing.T) {
	t.Parallel()
	b := start(t)
	for _, event := range []string{
		sweep, `{}`, ``, alarm(queueName, "ALARM", "OK", moment), alarm(queueName, "OK", "INSUFFICIENT_DATA", moment),
	} {
		if s := b.handle(event); s.Published || len(s.Queues) == 0 {
			t.Errorf("event %q: got %+v, want a look and no notification", event, s)
		}
	}
	b.wantPublished(0)
}

func TestAnAlarmThatIsOverIsToldOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	event := alarm(queueName, "OK", "ALARM", moment)
	b.handle(event)
	b.handle(event)
	b.wantPublished(1)
	if subject, _ := b.topic.last(); subject != "agent-tasks-dlq is empty again" {
		t.Errorf("subject: got %q", subject)
	}

	// A look hides messages for a moment, in which the alarm may see an empty queue.
	b.submit("echo", "first")
	b.handle(sweep)
	b.handle(alarm(queueName, "OK", "ALARM", later))
	b.wantPublished(2)
}

func TestAnAlarmIsAboutItsOwnQueue(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	b.put(b.ordered, `{}`, "group")
	if s := b.handle(alarm(orderedName, "ALARM", "OK", moment)); len(s.Queues) != 1 || s.Queues[0].Name != orderedName {
		t.Errorf("got %+v, want a look into %s only", s, orderedName)
	}
	// Without the queue's name the command would move the dead letters of both.
	if _, body := b.topic.last(); strings.Count(body, "agentctl dlq redrive") != strings.Count(body, "agentctl dlq redrive --queue ordered") {
		t.Errorf("body: want commands for the ordered queue alone:\n%s", body)
	}
	if s := b.handle(alarm("another-queue", "ALARM", "OK", moment)); len(s.Queues) != 2 {
		t.Errorf("alarm on another queue: got %+v, want a look into all queues", s)
	}
	if subject, _ := b.topic.last(); !strings.HasPrefix(subject, "2 dead letters in 2 queues: ") {
		t.Errorf("subject: got %q, want it to count both queues", subject)
	}
}

func TestAFailedPublishIsMadeUpFor(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]string{"alarm": alarm(queueName, "ALARM", "OK", moment), "schedule": sweep} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.submit("echo", "first")
			broken := errors.New("no such topic")
			b.topic.breakWith(broken)
			s, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(event))
			if !errors.Is(err, broken) || s.Published {
				t.Errorf("got published %v, error %v; want false, %v", s.Published, err, broken)
			}
			b.wantVisible(queueName, 1)
			b.topic.breakWith(nil)
			b.handle(event)
			b.wantPublished(1)
			b.handle(event)
			b.wantPublished(1)
		})
	}
}

func TestALookThatFailsHalfWayIsNoNews(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 15 {
		b.submit("echo", fmt.Sprint("th-", i))
	}
	b.config.Queues = b.config.Queues[:1]
	b.handle(sweep)
	b.config.SQS = &flaky{API: b.config.SQS, receives: 1, err: errThrottled}
	if s, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(sweep)); !errors.Is(err, errThrottled) || s.Published {
		t.Errorf("got published %v, error %v; want false, %v", s.Published, err, errThrottled)
	}
	b.wantPublished(1)
}

// Without the table nobody can say what was told: an alarm is told, a sweep waits for the next.
func TestWithoutTheTableAnAlarmIsStillTold(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.submit("echo", "first")
	broken := errors.New("the table does not answer")
	b.config.Store = downStore{err: broken}
	s, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(sweep))
	if !errors.Is(err, broken) || s.Published {
		t.Errorf("sweep: got published %v, error %v; want false, %v", s.Published, err, broken)
	}
	s, err = dlqalarm.New(b.config).Handle(t.Context(), []byte(alarm(queueName, "ALARM", "OK", moment)))
	if !errors.Is(err, broken) || !s.Published {
		t.Errorf("alarm: got published %v, error %v; want true, %v", s.Published, err, broken)
	}
	b.wantVisible(queueName, 1)
}

var _ dlqalarm.Store = (*checkpoint.Store)(nil)
