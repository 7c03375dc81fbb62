package dlqalarm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/dlqalarm"
	"agentworker/internal/task"
)

func TestDeadLettersAreGroupedByTypeAndReason(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.config.SQS = b.sqs // with the long poll that the others are spared
	const reason = "the model said: 'their account is closed'"
	var failed, unreached []task.ID
	for i := range 20 {
		m, id := b.submit("echo", fmt.Sprint("failed-", i))
		b.fail(b.claim(m.ID, id, time.Minute), task.Failure{Code: task.CodeFailed, Message: reason})
		failed = append(failed, m.ID)
	}
	for i := range 12 {
		m, _ := b.submit("shout", fmt.Sprint("unreached-", i))
		unreached = append(unreached, m.ID)
	}
	for i := range 8 {
		b.put(b.url, fmt.Sprintf("{\"text\": broken %d", i), "")
	}

	got := b.handle(alarm(queueName, "ALARM", "OK", moment))

	q := got.Queues[0]
	want := []string{"20 TASK_FAILED echo", "12 DEAD_LETTERED shout", "8 MALFORMED_MESSAGE"}
	if diff := cmp.Diff(want, counts(q.Groups)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if len(got.Queues) != 1 || q.Seen != 40 || !q.Complete || !got.Published {
		t.Errorf("summary: got %+v, want one queue with 40 messages, complete, published", got)
	}
	b.wantVisible(queueName, 40)

	for _, id := range failed {
		if rec := b.record(id); rec.Status != checkpoint.Failed || rec.Error == nil || rec.Error.Message != reason {
			t.Errorf("task %s that a worker gave up: got %s, %+v, want failed with the worker's reason", id, rec.Status, rec.Error)
		}
	}
	for _, id := range unreached {
		if rec := b.record(id); rec.Status != checkpoint.Failed || rec.Error == nil || rec.Error.Code != task.CodeDeadLettered {
			t.Errorf("task %s that no worker saw: got %s, %+v, want failed, %s", id, rec.Status, rec.Error, task.CodeDeadLettered)
		}
	}
	for _, id := range q.Groups[2].TaskIDs {
		rec := b.record(id)
		if id.Thread() != task.Unparsed || rec.Error == nil || rec.Error.Code != task.CodeMalformed {
			t.Errorf("malformed message: got record %s with %+v, want one in thread %q, %s", id, rec.Error, task.Unparsed, task.CodeMalformed)
		}
	}

	subject, body := b.topic.last()
	if want := "40 dead letters in agent-tasks-dlq: 20 TASK_FAILED, 12 DEAD_LETTERED, 8 MALFORMED_MESSAGE"; subject != want {
		t.Errorf("subject: got %q, want %q", subject, want)
	}
	for _, want := range []string{
		"20 x TASK_FAILED, echo", reason, "12 x DEAD_LETTERED, shout", "8 x MALFORMED_MESSAGE, no known task type",
		string(failed[0]), "and 17 more", `"agent-tasks-dlq-depth" in the runbook`, "since 2026-02-17T11:53:08Z",
		"agentctl dlq redrive --queue tasks --reason <code>, or all of them by agentctl dlq redrive --queue tasks, ",
		"aws sqs start-message-move-task --source-arn arn:aws:sqs:us-east-1:000000000000:agent-tasks-dlq\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("body lacks %q:\n%s", want, body)
		}
	}
	if logs := b.logs.String(); strings.Contains(logs, "account") || strings.Contains(logs, "broken") || !strings.Contains(logs, string(failed[0])) {
		t.Errorf("logs: want ids and codes, no reasons and bodies:\n%s", logs)
	}
	for _, want := range []string{`"DeadLetters":[20],"_aws"`, `"task":"echo"`, `"DeadLetters":[12]`, `"DeadLetters":[8]`} {
		if !strings.Contains(b.metrics.String(), want) {
			t.Errorf("metrics lack %s:\n%s", want, b.metrics)
		}
	}
}

func TestTasksThatHaveNotFailedAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := start(t)
	tests := map[string]struct {
		prepare func(m task.Message, messageID string)
		code    string
		status  checkpoint.Status
	}{
		"succeeded": {
			func(m task.Message, id string) {
				rec := b.claim(m.ID, id, time.Minute)
				if _, err := b.store.Commit(b.Context(), checkpoint.Commit{Record: rec, Step: "answer", Data: []byte(`"x"`), Last: true}); err != nil {
					b.Fatalf("commit: %v", err)
				}
			},
			dlq.CodeSucceeded, checkpoint.Succeeded,
		},
		"a worker is at it": {
			func(m task.Message, id string) { b.claim(m.ID, id, time.Hour) },
			dlq.CodeInProgress, checkpoint.Running,
		},
		"redriven meanwhile": {
			func(m task.Message, id string) {
				b.fail(b.claim(m.ID, id, time.Minute), task.Failure{Code: task.CodeFailed, Message: "first"})
				rec := b.claim(m.ID, "a-newer-message", time.Minute)
				end := checkpoint.End{Status: checkpoint.Retrying, Failure: task.Failure{Code: task.CodeFailed, Message: "again"}}
				if err := b.store.End(b.Context(), rec, end); err != nil {
					b.Fatalf("end: %v", err)
				}
			},
			dlq.CodeMovedOn, checkpoint.Retrying,
		},
	}
	want := map[task.ID]checkpoint.Record{}
	codes := map[task.ID]string{}
	for name, tt := range tests {
		m, id := b.submit("echo", strings.ReplaceAll(name, " ", "-"))
		tt.prepare(m, id)
		want[m.ID], codes[m.ID] = b.record(m.ID), tt.code
		if got := want[m.ID].Status; got != tt.status {
			t.Fatalf("%s: prepared as %s, want %s", name, got, tt.status)
		}
	}
	got := b.handle(`{}`)
	for _, g := range got.Queues[0].Groups {
		for _, id := range g.TaskIDs {
			if g.Code != codes[id] {
				t.Errorf("task %s: got code %s, want %s", id, g.Code, codes[id])
			}
			if diff := cmp.Diff(want[id], b.record(id)); diff != "" {
				t.Errorf("record of %s was changed (-before +after):\n%s", id, diff)
			}
		}
	}
	if got.Queues[0].Seen != len(tests) {
		t.Errorf("seen: got %d, want %d", got.Queues[0].Seen, len(tests))
	}
	b.wantVisible(queueName, len(tests))
}

func TestAWorkerThatDiedIsTheReason(t *testing.T) {
	t.Parallel()
	b := start(t)
	m, id := b.submit("echo", "died")
	b.claim(m.ID, id, -time.Second)
	got := b.handle(sweep)
	if want := []string{"1 INTERRUPTED echo"}; !slices.Equal(counts(got.Queues[0].Groups), want) {
		t.Errorf("groups: got %v, want %v", counts(got.Queues[0].Groups), want)
	}
	if rec := b.record(m.ID); rec.Status != checkpoint.Failed {
		t.Errorf("status: got %s, want failed", rec.Status)
	}
}

func TestACheckThatPanicsDoesNotHideTheRest(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(b.url, `{"task":"echo","task_id":"th.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB","text":"panic"}`, "")
	b.submit("echo", "fine")
	got := b.handle(sweep)
	want := []string{"1 DEAD_LETTERED echo", "1 PANIC echo"}
	if groups := counts(got.Queues[0].Groups); !slices.Equal(groups, want) {
		t.Errorf("groups: got %v, want %v", groups, want)
	}
	b.wantVisible(queueName, 2)
}

// What stands in a message as its type is for the record only, until it is known to be one.
func TestAnUnknownTypeIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.put(b.url, `{"task":"forged\ntask","task_id":"th.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"}`, "")
	got := b.handle(sweep)
	if groups, want := counts(got.Queues[0].Groups), []string{"1 UNKNOWN_TASK"}; !slices.Equal(groups, want) {
		t.Errorf("groups: got %q, want %q", groups, want)
	}
	if strings.Contains(b.logs.String()+b.metrics.String(), "forged") {
		t.Errorf("logs and metrics repeat the type:\n%s%s", b.logs, b.metrics)
	}
	if rec := b.record("th.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"); rec.Task != "forged\ntask" || rec.Error.Code != task.CodeUnknownTask {
		t.Errorf("record: got %+v, want the type as it was sent, and %s", rec, task.CodeUnknownTask)
	}
}

func TestAFIFOGroupShowsItsFirstBatchOnly(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 25 {
		id := task.NewID("ticket-1", time.Now())
		b.put(b.ordered, fmt.Sprintf(`{"task":"echo","task_id":%q,"text":"update %d"}`, id, i), "ticket-1")
	}
	got := b.handle(alarm(orderedName, "ALARM", "OK", moment)).Queues[0]
	if got.Seen != 10 || got.Approximate != 25 || got.Complete {
		t.Errorf("got %d seen of %d, complete %v; want 10 of 25, not complete", got.Seen, got.Approximate, got.Complete)
	}
	subject, body := b.topic.last()
	if want := "at least 10 dead letters in agent-tasks-ordered-dlq.fifo: 10 DEAD_LETTERED"; subject != want {
		t.Errorf("subject: got %q, want %q", subject, want)
	}
	if want := "at least 10 dead letters (of approximately 25 by the queue's count)"; !strings.Contains(body, want) {
		t.Errorf("body lacks %q:\n%s", want, body)
	}
	b.wantVisible(orderedName, 25)
}

// A move between FIFO queues starts the send time anew, of which the ids of messages without one are made.
func TestAForeignFIFOMessageGetsNoSecondRecord(t *testing.T) {
	t.Parallel()
	b := start(t)
	source := b.create("source.fifo", map[string]string{
		"FifoQueue": "true", "VisibilityTimeout": "0",
		"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:` + orderedName + `","maxReceiveCount":"1"}`,
	})
	for group, body := range map[string]string{
		"with-thread":    `{"task":"echo","thread_id":"their-thread","text":"hi"}`,
		"without-thread": `{"task":"echo","text":"hi"}`,
		"unreadable":     `{"task":`,
		"unreached":      `{"task":"shout","thread_id":"other-thread","text":"hi"}`,
	} {
		b.put(source, body, group)
	}
	receive := func() []types.Message {
		out, err := b.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &source, MaxNumberOfMessages: 10,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		return out.Messages
	}
	sent := func(m types.Message) time.Time {
		ms, err := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64)
		if err != nil {
			t.Fatalf("SentTimestamp: %v", err)
		}
		return time.UnixMilli(ms)
	}

	var original []task.ID // as a worker recorded them
	var moved task.Message // what the message without a thread is now
	for _, m := range receive() {
		msg, malformed := b.config.Tasks.Decode([]byte(*m.Body), *m.MessageId, sent(m))
		if msg.Task == "shout" {
			continue
		}
		if malformed != nil {
			msg.Task = ""
		}
		rec, err := b.store.Claim(t.Context(), checkpoint.ClaimRequest{
			ID: msg.ID, Task: msg.Task, MessageID: *m.MessageId, SentAt: sent(m), Owner: "worker", Until: time.Now().Add(time.Minute),
		})
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		b.fail(rec, task.Failure{Code: "BY_A_WORKER", Message: "it failed"})
		original = append(original, msg.ID)
	}
	if rest := receive(); len(rest) > 0 {
		t.Fatalf("second receive: got %d messages, want all of them moved", len(rest))
	}

	peek := b.peek(b.ordered)
	for _, m := range peek {
		msg, _ := b.config.Tasks.Decode([]byte(*m.Body), *m.MessageId, sent(m))
		if slices.Contains(original, msg.ID) {
			t.Fatalf("the move kept the send time of %s: the test shows nothing", msg.ID)
		}
		if strings.HasPrefix(msg.Thread, "th-") {
			moved = msg
		}
	}

	for range 2 {
		got := b.handle(sweep).Queues[1]
		want := []string{"1 BY_A_WORKER", "1 DEAD_LETTERED shout", "2 BY_A_WORKER echo"}
		groups := counts(got.Groups)
		slices.Sort(groups)
		if !slices.Equal(groups, want) {
			t.Errorf("groups: got %v, want %v", groups, want)
		}
	}
	for thread, want := range map[string]int{"their-thread": 1, "other-thread": 1, task.Unparsed: 1, moved.Thread: 1} {
		records, _, err := b.store.History(t.Context(), thread, "", 10)
		if err != nil {
			t.Fatalf("history of %s: %v", thread, err)
		}
		if len(records) != want {
			t.Errorf("thread %s: got %d records, want %d: %+v", thread, len(records), want, records)
		}
	}
	b.wantVisible(orderedName, 4)
}

func TestALookThatFailsHalfWayGivesEverythingBack(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 25 {
		b.submit("echo", fmt.Sprint("th-", i))
	}
	b.config.SQS = &flaky{API: b.config.SQS, receives: 2, err: errThrottled}
	b.config.Queues = b.config.Queues[:1]
	s, err := dlqalarm.New(b.config).Handle(t.Context(), []byte(alarm(queueName, "ALARM", "OK", moment)))
	if !errors.Is(err, errThrottled) {
		t.Errorf("error: got %v, want %v", err, errThrottled)
	}
	if q := s.Queues[0]; q.Seen != 20 || q.Complete || !s.Published {
		t.Errorf("summary: got %+v, want 20 seen, not complete, published", s)
	}
	b.wantVisible(queueName, 25)
}

func TestACalledOffLookGivesEverythingBack(t *testing.T) {
	t.Parallel()
	b := start(t)
	for i := range 25 {
		b.submit("echo", fmt.Sprint("th-", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.config.SQS = &flaky{API: b.config.SQS, receives: 2, onBreak: cancel, err: context.Canceled}
	b.config.Queues = b.config.Queues[:1]
	if _, err := dlqalarm.New(b.config).Handle(ctx, []byte(sweep)); !errors.Is(err, context.Canceled) {
		t.Errorf("error: got %v, want %v", err, context.Canceled)
	}
	b.wantVisible(queueName, 25)
}

func TestAMessageThatIsNotGivenBackIsLogged(t *testing.T) {
	t.Parallel()
	b := start(t)
	ids := []string{}
	for i := range 3 {
		_, id := b.submit("echo", fmt.Sprint("th-", i))
		ids = append(ids, id)
	}
	b.config.SQS = clinging{b.config.SQS}
	b.handle(sweep)
	logged := 0
	for entry := range strings.Lines(b.logs.String()) {
		for _, id := range ids {
			if strings.Contains(entry, "ReceiptHandleIsInvalid") && strings.Contains(entry, id) {
				logged++
			}
		}
	}
	if visible, hidden, _, _ := b.server.Depth(queueName); visible != 2 || hidden != 1 || logged != 1 {
		t.Errorf("got %d visible, %d hidden, %d logged; want 2, 1, 1:\n%s", visible, hidden, logged, b.logs)
	}
}

func TestOneUnavailableRecordDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	b := start(t)
	bad, _ := b.submit("echo", "bad")
	good, _ := b.submit("echo", "good")
	broken := errors.New("the table does not answer")
	b.config.Store = &brokenStore{Store: b.store, id: bad.ID, err: broken}
	event := []byte(alarm(queueName, "ALARM", "OK", moment))

	s, err := dlqalarm.New(b.config).Handle(t.Context(), event)
	if !errors.Is(err, broken) {
		t.Errorf("error: got %v, want %v, so that the invocation is repeated", err, broken)
	}
	want := []string{"1 DEAD_LETTERED echo", "1 RECORD_UNAVAILABLE echo"}
	if got := counts(s.Queues[0].Groups); !slices.Equal(got, want) || !s.Published {
		t.Errorf("got %v, published %v; want %v, published", got, s.Published, want)
	}
	if rec := b.record(good.ID); rec.Status != checkpoint.Failed {
		t.Errorf("the other task: got %s, want failed", rec.Status)
	}
	b.wantVisible(queueName, 2)

	// The repetition tells the reason that was missing.
	b.config.Store = b.store
	b.handle(string(event))
	b.wantPublished(2)
	if rec := b.record(bad.ID); rec.Status != checkpoint.Failed {
		t.Errorf("the task at the second try: got %s, want failed", rec.Status)
	}
	b.handle(string(event))
	b.wantPublished(2)
}
