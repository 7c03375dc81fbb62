package sqs_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "VisibilityTimeout", "5")
	w.send(url, "work")
	m := w.one(url)
	must(t, 0, w.delete(url, m))
	must(t, 0, w.delete(url, m)) // twice is fine
	w.wantDepth(url, "tasks", 0, 0, 0)

	w.send(url, "late")
	m = w.one(url)
	w.clock.Advance(5 * time.Second) // visible again, but nobody has received it since
	must(t, 0, w.delete(url, m))
	w.wantDepth(url, "tasks", 0, 0, 0)
}

func TestHandleOfAnOlderReceiveIsStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "VisibilityTimeout", "5")
	w.send(url, "work")
	older := w.one(url)
	w.clock.Advance(5 * time.Second)
	newer := w.one(url)
	if *older.ReceiptHandle == *newer.ReceiptHandle {
		t.Fatal("two receives gave the same receipt handle")
	}
	must(t, 0, w.delete(url, older)) // answered as if it had worked
	w.wantDepth(url, "tasks", 0, 1, 0)
	wantCode(t, w.hide(url, older, 100), "InvalidParameterValue")
	w.clock.Advance(5 * time.Second)
	must(t, 0, w.delete(url, w.one(url)))
	w.wantDepth(url, "tasks", 0, 0, 0)
}

func TestHandleThatWasNeverGivenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, other := w.queue("tasks"), w.queue("other")
	w.send(other, "x")
	m := w.one(other)
	w.send(url, "y")
	valid := *w.one(url).ReceiptHandle
	for name, handle := range map[string]*string{
		"garbage": aws.String("garbage"), "base64": aws.String("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "other queue's": m.ReceiptHandle, "altered": aws.String(valid[:12] + "B" + valid[13:]),
	} {
		t.Log(name)
		wantError[*types.ReceiptHandleIsInvalid](t, w.delete(url, types.Message{ReceiptHandle: handle}))
		wantError[*types.ReceiptHandleIsInvalid](t, w.hide(url, types.Message{ReceiptHandle: handle}, 1))
	}
}

func TestChangeMessageVisibility(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "VisibilityTimeout", "10")
	w.send(url, "work")

	m := w.one(url)
	w.clock.Advance(9 * time.Second)
	must(t, 0, w.hide(url, m, 10)) // counts from now
	w.clock.Advance(10*time.Second - time.Millisecond)
	w.wantBodies(w.receive(url, 1))
	w.clock.Advance(time.Millisecond)

	m = w.one(url)
	must(t, 0, w.hide(url, m, 0)) // visible at once
	wantError[*types.MessageNotInflight](t, w.hide(url, m, 5))
	m = w.one(url)
	w.clock.Advance(10 * time.Second)
	wantError[*types.MessageNotInflight](t, w.hide(url, m, 5)) // its timeout has ended
	w.one(url)

	wantCode(t, w.hide(url, m, 43_201), "InvalidParameterValue")
	must(t, 0, w.delete(url, m))
}

func TestVisibilityEndsTwelveHoursAfterTheReceive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	w.send(url, "work")
	w.clock.Advance(time.Hour) // only the receive counts
	m := w.one(url, visibility(3600))
	must(t, 0, w.hide(url, m, 43_200))
	w.clock.Advance(30 * time.Minute)
	wantCode(t, w.hide(url, m, 43_200-1800+1), "InvalidParameterValue")
	must(t, 0, w.hide(url, m, 43_200-1800))
	w.clock.Advance(12*time.Hour - 30*time.Minute)
	must(t, 0, w.hide(url, w.one(url), 43_200)) // a new receive starts anew
}

func TestBatchesOfHandles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	w.send(url, "a")
	w.send(url, "b")
	got := w.receive(url, 10)
	change, err := w.client.ChangeMessageVisibilityBatch(t.Context(), &awssqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: &url,
		Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 0},
			{Id: aws.String("2"), ReceiptHandle: aws.String("garbage"), VisibilityTimeout: 1},
			{Id: aws.String("3"), ReceiptHandle: got[1].ReceiptHandle, VisibilityTimeout: 43_201},
		},
	})
	must(t, change, err)
	if len(change.Successful) != 1 || len(change.Failed) != 2 || *change.Failed[0].Code != "ReceiptHandleIsInvalid" ||
		*change.Failed[1].Code != "InvalidParameterValue" {
		t.Errorf("change: successful %v, failed %v, want 1 and the two others with their codes", change.Successful, change.Failed)
	}
	w.wantDepth(url, "tasks", 1, 1, 0)
	deleted, err := w.client.DeleteMessageBatch(t.Context(), &awssqs.DeleteMessageBatchInput{
		QueueUrl: &url,
		Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: got[0].ReceiptHandle},
			{Id: aws.String("2"), ReceiptHandle: got[1].ReceiptHandle},
			{Id: aws.String("3"), ReceiptHandle: aws.String("garbage")},
		},
	})
	must(t, deleted, err)
	if len(deleted.Successful) != 2 || len(deleted.Failed) != 1 || *deleted.Failed[0].Id != "3" {
		t.Errorf("delete: successful %v, failed %v, want 1 and 2, and 3", deleted.Successful, deleted.Failed)
	}
	w.wantDepth(url, "tasks", 0, 0, 0)
	_, err = w.client.DeleteMessageBatch(t.Context(), &awssqs.DeleteMessageBatchInput{
		QueueUrl: &url,
		Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: got[0].ReceiptHandle}, {Id: aws.String("1"), ReceiptHandle: got[1].ReceiptHandle},
		},
	})
	wantError[*types.BatchEntryIdsNotDistinct](t, err)
}
