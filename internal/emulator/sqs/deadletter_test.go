package sqs_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func TestDeadLetterMoveIsLazy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.queue("dead")
	url := w.queue("tasks", "VisibilityTimeout", "10", "RedrivePolicy", redrive("dead", 2))
	sentAt := w.clock.Now()
	sent := w.send(url, "poison", inGroup("g"), func(in *awssqs.SendMessageInput) {
		in.MessageAttributes = map[string]types.MessageAttributeValue{"a": text("b")}
	})
	w.one(url)
	w.clock.Advance(10 * time.Second)
	w.one(url)
	w.clock.Advance(10 * time.Second)
	w.wantDepth(url, "tasks", 1, 0, 0) // not before the next receive
	w.wantDepth(dead, "dead", 0, 0, 0)
	w.send(url, "healthy")
	w.wantBodies(w.receive(url, 10), "healthy")
	w.wantDepth(dead, "dead", 1, 0, 0)

	m := w.one(dead)
	for name, want := range map[string]string{
		"SentTimestamp":                    strconv.FormatInt(sentAt.UnixMilli(), 10),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(sentAt.UnixMilli(), 10),
		"ApproximateReceiveCount":          "3", // goes on counting over the queues
		"DeadLetterQueueSourceArn":         arn("tasks"),
		"MessageGroupId":                   "g",
	} {
		if got := m.Attributes[name]; got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	if *m.MessageId != *sent.MessageId || *m.Body != "poison" || aws.ToString(m.MessageAttributes["a"].StringValue) != "b" {
		t.Errorf("dead letter = %s %q %v, want id %s, the body and the attributes", *m.MessageId, *m.Body, m.MessageAttributes, *sent.MessageId)
	}
}

// Case: DLQ retention
func TestDeadLetterRetentionCountsFromTheFirstSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.queue("dead", "MessageRetentionPeriod", "100")
	url := w.queue("tasks", "RedrivePolicy", redrive("dead", 1))
	w.send(url, "poison")
	w.returned(url, 1)
	w.clock.Advance(60 * time.Second)
	w.wantBodies(w.receive(url, 1))
	w.clock.Advance(40*time.Second - time.Millisecond)
	w.wantDepth(dead, "dead", 1, 0, 0)
	w.clock.Advance(time.Millisecond)
	w.wantDepth(dead, "dead", 0, 0, 0)
}

func TestDeadLetterOfAFIFOQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.fifo("dead.fifo", "MessageRetentionPeriod", "100")
	url := w.fifo("q.fifo", "RedrivePolicy", redrive("dead.fifo", 1))
	sent := w.send(url, "a1", inGroup("a"), deduplicated("a1"))
	w.sendFIFO(url, "a", "a2")
	w.returned(url, 1)
	w.clock.Advance(60 * time.Second)
	movedAt := w.clock.Now()
	w.wantBodies(w.receive(url, 1), "a2") // the head is out of the way
	m := w.one(dead)
	if *m.MessageId != *sent.MessageId || system(m, "MessageDeduplicationId") != *sent.MessageId {
		t.Errorf("id and deduplication id = %s, %s, want %s for both", *m.MessageId, system(m, "MessageDeduplicationId"), *sent.MessageId)
	}
	if got, want := system(m, "SentTimestamp"), strconv.FormatInt(movedAt.UnixMilli(), 10); got != want {
		t.Errorf("SentTimestamp = %s, want %s: the time of the move", got, want)
	}
	w.clock.Advance(100*time.Second - time.Millisecond) // from the move on
	w.wantDepth(dead, "dead.fifo", 1, 0, 0)
	w.clock.Advance(time.Millisecond)
	w.wantDepth(dead, "dead.fifo", 0, 0, 0)
}

func TestMissingDeadLetterQueueLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.queue("dead")
	url := w.queue("tasks", "RedrivePolicy", redrive("dead", 1))
	w.send(url, "poison")
	_, err := w.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &dead})
	must(t, 0, err)
	w.returned(url, 1)
	w.wantBodies(w.returned(url, 1), "poison")
}

func TestDeadLetterWakesAPollOfTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.queue("dead")
	url := w.queue("tasks", "RedrivePolicy", redrive("dead", 1))
	w.send(url, "poison")
	w.returned(url, 1)
	done := w.startPoll(t.Context(), dead, 20, 0)
	w.wantBodies(w.receive(url, 1))
	w.wantBodies(w.await(done), "poison")
}
