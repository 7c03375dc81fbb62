package sqs_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/emulator/sqs"
)

func (w *world) sendFIFO(url, group string, bodies ...string) {
	w.Helper()
	for _, body := range bodies {
		w.send(url, body, inGroup(group), deduplicated(body))
	}
}

func TestFIFODeliversOneGroupInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "VisibilityTimeout", "10")
	w.sendFIFO(url, "a", "a1", "a2")
	w.sendFIFO(url, "b", "b1")
	w.sendFIFO(url, "a", "a3", "a4")
	got := w.receive(url, 10)
	w.wantBodies(got, "a1", "a2", "a3", "a4", "b1") // as many of one group as possible first
	last := ""
	for _, m := range got[:4] {
		sequence := system(m, "SequenceNumber")
		if len(sequence) != 20 || sequence <= last {
			t.Errorf("sequence number %s after %s, want 20 digits and more", sequence, last)
		}
		last = sequence
	}
	if m := got[4]; system(m, "MessageGroupId") != "b" || system(m, "MessageDeduplicationId") != "b1" {
		t.Errorf("group and deduplication id = %s, %s, want b, b1", system(m, "MessageGroupId"), system(m, "MessageDeduplicationId"))
	}
}

func TestFIFOGroupIsLockedWhileInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "VisibilityTimeout", "10")
	w.sendFIFO(url, "a", "a1", "a2", "a3")
	w.sendFIFO(url, "b", "b1")
	head := w.receive(url, 1)
	w.wantBodies(head, "a1")
	w.wantBodies(w.receive(url, 10), "b1") // other groups go on
	w.sendFIFO(url, "a", "a4")
	w.wantBodies(w.receive(url, 10))

	must(t, 0, w.delete(url, head[0]))
	batch := w.receive(url, 2)
	w.wantBodies(batch, "a2", "a3")
	must(t, 0, w.delete(url, batch[0]))
	w.wantBodies(w.receive(url, 10)) // a3 still is in flight
	must(t, 0, w.delete(url, batch[1]))
	w.wantBodies(w.receive(url, 10), "a4")
}

func TestFIFOKeepsOrderOnRedelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "VisibilityTimeout", "10")
	w.sendFIFO(url, "a", "a1", "a2", "a3")
	first := w.receive(url, 2)
	w.wantBodies(first, "a1", "a2")
	w.clock.Advance(10 * time.Second)
	second := w.receive(url, 10)
	w.wantBodies(second, "a1", "a2", "a3")

	// The batch comes back one by one: the head is delivered again, nothing passes what is in flight.
	must(t, 0, w.hide(url, second[2], 0))
	w.wantBodies(w.receive(url, 10))
	must(t, 0, w.hide(url, second[0], 0))
	w.wantBodies(w.receive(url, 10), "a1")
	must(t, 0, w.hide(url, second[1], 0))
	w.wantBodies(w.receive(url, 10)) // a1 is in flight again
}

func TestFIFOLongPollWakesWhenTheGroupIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo")
	w.sendFIFO(url, "a", "a1", "a2")
	head := w.one(url)
	done := w.startPoll(t.Context(), url, 20, 0)
	must(t, 0, w.delete(url, head))
	w.wantBodies(w.await(done), "a2")
}

func TestFIFODeduplication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo")
	first := w.send(url, "one", inGroup("a"), deduplicated("id"))
	must(t, 0, w.delete(url, w.one(url)))
	w.clock.Advance(5*time.Minute - time.Millisecond)
	again := w.send(url, "two", inGroup("b"), deduplicated("id")) // of the whole queue, and after the delete
	if *again.MessageId != *first.MessageId || *again.SequenceNumber != *first.SequenceNumber {
		t.Errorf("duplicate got %s, %s, want %s, %s of the first", *again.MessageId, *again.SequenceNumber, *first.MessageId, *first.SequenceNumber)
	}
	w.wantDepth(url, "q.fifo", 0, 0, 0)
	w.clock.Advance(time.Millisecond)
	if third := w.send(url, "three", inGroup("a"), deduplicated("id")); *third.MessageId == *first.MessageId {
		t.Error("the id is still remembered after 5 minutes")
	}
	w.wantBodies(w.receive(url, 10), "three")
}

func TestFIFODeduplicationPerGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId")
	w.send(url, "a", inGroup("a"), deduplicated("id"))
	w.send(url, "b", inGroup("b"), deduplicated("id"))
	w.send(url, "a again", inGroup("a"), deduplicated("id"))
	w.wantBodies(w.receive(url, 10), "a", "b")
}

func TestFIFOContentBasedDeduplication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "ContentBasedDeduplication", "true")
	with := func(value string) func(*awssqs.SendMessageInput) {
		return func(in *awssqs.SendMessageInput) {
			in.MessageAttributes = map[string]types.MessageAttributeValue{"a": text(value)}
		}
	}
	w.send(url, "same", inGroup("a"), with("1"))
	w.send(url, "same", inGroup("a"), with("2")) // attributes do not count
	w.send(url, "other", inGroup("a"))
	w.send(url, "same", inGroup("a"), deduplicated("own-id"))
	// The generated id and the same one given are duplicates too: SHA-256 of "same".
	w.send(url, "more", inGroup("a"), deduplicated("0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5"))
	w.wantBodies(w.receive(url, 10), "same", "other", "same")
}

func TestFIFORefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo")
	send := func(change ...func(*awssqs.SendMessageInput)) error {
		in := &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x")}
		for _, c := range change {
			c(in)
		}
		_, err := w.client.SendMessage(t.Context(), in)
		return err
	}
	wantCode(t, send(deduplicated("id")), "MissingParameter")
	wantCode(t, send(inGroup("a")), "InvalidParameterValue")
	wantCode(t, send(inGroup("a"), deduplicated("id"), delayed(1)), "InvalidParameterValue")
	_, err := w.client.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{
		QueueUrl: &url,
		Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("1"), MessageBody: aws.String("x"), MessageGroupId: aws.String("a"), MessageDeduplicationId: aws.String("1")},
			{Id: aws.String("2"), MessageBody: aws.String("x"), MessageGroupId: aws.String("a")},
		},
	})
	wantCode(t, err, "InvalidParameterValue")
	w.wantDepth(url, "q.fifo", 0, 0, 0)
}

func TestFIFODelayOfTheQueueIsRetroactive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "DelaySeconds", "30")
	w.sendFIFO(url, "a", "a1")
	w.wantDepth(url, "q.fifo", 0, 0, 1)
	done := w.startPoll(t.Context(), url, 20, 0)
	must(t, 0, w.set(url, "DelaySeconds", "0"))
	w.wantBodies(w.await(done), "a1")
}

func TestFIFOHandleExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo", "VisibilityTimeout", "5")
	w.sendFIFO(url, "a", "a1")
	m := w.one(url)
	w.clock.Advance(4 * time.Second)
	must(t, 0, w.hide(url, m, 5))
	w.clock.Advance(5 * time.Second)
	err := w.delete(url, m)
	wantCode(t, err, "InvalidParameterValue")
	if err == nil || !strings.Contains(err.Error(), "The receipt handle has expired") {
		t.Errorf("error = %v, want one that says that the receipt handle has expired", err)
	}
	newer := w.one(url)
	wantCode(t, w.delete(url, m), "InvalidParameterValue")
	must(t, 0, w.delete(url, newer))
	must(t, 0, w.delete(url, newer)) // it is gone: fine
}

func TestFIFOKeepsOrderUnderConcurrency(t *testing.T) {
	t.Parallel()
	w := openWorld(t, sqs.Options{})
	url := w.fifo("q.fifo", "ContentBasedDeduplication", "true")
	const groups, each = 6, 25
	for i := range each {
		for g := range groups {
			w.send(url, fmt.Sprintf("%d %02d", g, i), inGroup(fmt.Sprint(g)))
		}
	}
	var mu sync.Mutex
	seen := map[string][]string{}
	left := groups * each
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				mu.Lock()
				done := left == 0
				mu.Unlock()
				if done {
					return
				}
				got, err := w.receiveFrom(t.Context(), url, 3)
				if err != nil {
					t.Error(err)
					return
				}
				for _, m := range got {
					mu.Lock()
					group := system(m, "MessageGroupId")
					seen[group] = append(seen[group], *m.Body)
					left--
					mu.Unlock()
					if err := w.delete(url, m); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	workers.Wait()
	for group, bodies := range seen {
		if len(bodies) != each || !slices.IsSorted(bodies) {
			t.Errorf("group %s was delivered as %q, want %d messages in order", group, bodies, each)
		}
	}
}

func TestFIFOFailingGroupDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("q.fifo")
	w.sendFIFO(url, "a", "a1", "a2")
	w.clock.Advance(time.Second)
	w.sendFIFO(url, "b", "b1")
	w.clock.Advance(time.Second)
	w.wantBodies(w.returned(url, 1), "a1")
	w.wantBodies(w.returned(url, 1), "b1")
}
