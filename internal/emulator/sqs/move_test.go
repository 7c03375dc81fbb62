package sqs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func (w *world) startMove(source, destination string, rate int32) (string, error) {
	in := &awssqs.StartMessageMoveTaskInput{SourceArn: aws.String(arn(source))}
	if destination != "" {
		in.DestinationArn = aws.String(arn(destination))
	}
	if rate != 0 {
		in.MaxNumberOfMessagesPerSecond = &rate
	}
	out, err := w.client.StartMessageMoveTask(w.Context(), in)
	if err != nil {
		return "", err
	}
	return *out.TaskHandle, nil
}

// wantMove compares the newest task of the queue.
func (w *world) wantMove(source, status string, moved, toMove int64) types.ListMessageMoveTasksResultEntry {
	w.Helper()
	out, err := w.client.ListMessageMoveTasks(w.Context(), &awssqs.ListMessageMoveTasksInput{SourceArn: aws.String(arn(source))})
	got := must(w, out, err).Results[0]
	if *got.Status != status || got.ApproximateNumberOfMessagesMoved != moved || aws.ToInt64(got.ApproximateNumberOfMessagesToMove) != toMove {
		w.Errorf("task = %s, %d of %d moved, want %s, %d of %d", *got.Status, got.ApproximateNumberOfMessagesMoved,
			aws.ToInt64(got.ApproximateNumberOfMessagesToMove), status, moved, toMove)
	}
	if (got.TaskHandle != nil) != (status == "RUNNING") {
		w.Errorf("a task that is %s has the handle %v", status, got.TaskHandle)
	}
	return got
}

// poisoned makes a queue with a dead-letter queue and so many messages in the latter.
func (w *world) poisoned(name, dead string, messages int) (url string) {
	w.Helper()
	url = w.queue(name, "RedrivePolicy", redrive(dead, 1))
	for i := range messages {
		w.send(url, fmt.Sprintf("%s-%d", name, i))
		w.returned(url, 1)
		w.receive(url, 1)
	}
	return url
}

func TestMoveTaskReturnsMessagesToTheirSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.queue("dead")
	one := w.poisoned("one", "dead", 2)
	two := w.poisoned("two", "dead", 1)
	w.clock.Advance(time.Hour)
	before := w.returned(dead, 10)
	must(t, 0, func() error { _, err := w.startMove("dead", "", 0); return err }())
	w.wantMove("dead", "RUNNING", 0, 3)
	w.clock.Advance(time.Second)
	w.wantMove("dead", "COMPLETED", 3, 3)
	w.wantDepth(dead, "dead", 0, 0, 0)

	got := w.receive(one, 10)
	w.wantBodies(got, "one-0", "one-1")
	for _, m := range got {
		if system(m, "ApproximateReceiveCount") != "1" || m.Attributes["DeadLetterQueueSourceArn"] != "" ||
			system(m, "SentTimestamp") <= system(before[0], "SentTimestamp") {
			t.Errorf("redriven message has %v, want a receive count and a send time of its own", m.Attributes)
		}
		for _, old := range before {
			if *m.MessageId == *old.MessageId {
				t.Errorf("redriven message kept its id %s", *m.MessageId)
			}
		}
	}
	w.wantBodies(w.receive(two, 10), "two-0")
}

func TestMoveTaskKeepsItsRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	w.poisoned("tasks", "dead", 5)
	target := w.queue("target")
	handle, err := w.startMove("dead", "target", 2)
	must(t, handle, err)
	w.clock.Advance(time.Second)
	task := w.wantMove("dead", "RUNNING", 2, 5)
	if aws.ToInt32(task.MaxNumberOfMessagesPerSecond) != 2 || aws.ToString(task.DestinationArn) != arn("target") {
		t.Errorf("task shows rate %v and destination %v", task.MaxNumberOfMessagesPerSecond, task.DestinationArn)
	}
	_, err = w.startMove("dead", "", 0)
	wantCode(t, err, "InvalidParameterValue")
	if err == nil || !strings.Contains(err.Error(), "There is already a task running") {
		t.Errorf("second task: error = %v, want one that says so", err)
	}
	w.wantBodies(w.receive(target, 10), "tasks-0", "tasks-1")

	out, err := w.client.CancelMessageMoveTask(t.Context(), &awssqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
	if got := must(t, out, err).ApproximateNumberOfMessagesMoved; got != 2 {
		t.Errorf("cancelled after %d messages, want 2", got)
	}
	w.clock.Advance(time.Minute)
	w.wantMove("dead", "CANCELLED", 2, 5)
	if visible, _, _, _ := w.server.Depth("dead"); visible != 3 {
		t.Errorf("%d messages are left, want 3", visible)
	}
	_, err = w.client.CancelMessageMoveTask(t.Context(), &awssqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
	wantError[*types.UnsupportedOperation](t, err)
	_, err = w.startMove("dead", "", 1) // after the first one
	must(t, 0, err)
}

func TestMoveTaskWakesALongPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	url := w.poisoned("tasks", "dead", 1)
	done := w.startPoll(t.Context(), url, 20, 0)
	_, err := w.startMove("dead", "", 1)
	must(t, 0, err)
	w.advanceInSteps(time.Second)
	w.wantBodies(w.await(done), "tasks-0")
}

func TestMoveTaskFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	w.poisoned("tasks", "dead", 3)
	target := w.queue("target")
	_, err := w.startMove("dead", "target", 1)
	must(t, 0, err)
	w.clock.Advance(time.Second)
	_, err = w.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &target})
	must(t, 0, err)
	w.clock.Advance(time.Second)
	task := w.wantMove("dead", "FAILED", 1, 3)
	if got, want := aws.ToString(task.FailureReason), "AWS.SimpleQueueService.NonExistentQueue"; got != want {
		t.Errorf("FailureReason = %s, want %s", got, want)
	}
	if visible, _, _, _ := w.server.Depth("dead"); visible != 2 {
		t.Errorf("%d messages are left, want 2", visible)
	}
}

func TestMoveTaskRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	w.queue("tasks", "RedrivePolicy", redrive("dead", 1))
	w.fifo("ordered.fifo")
	for name, c := range map[string]struct {
		source, target string
		rate           int32
		code           string
	}{
		"no dead-letter queue":     {"tasks", "", 0, "InvalidParameterValue"},
		"no such source":           {"nothing", "", 0, "ResourceNotFoundException"},
		"no such destination":      {"dead", "nothing", 0, "ResourceNotFoundException"},
		"destination of a type":    {"dead", "ordered.fifo", 0, "InvalidParameterValue"},
		"destination is the same":  {"dead", "dead", 0, "InvalidParameterValue"},
		"rate over 500":            {"dead", "", 501, "InvalidParameterValue"},
		"rate under 1":             {"dead", "", -1, "InvalidParameterValue"},
		"source is not even an id": {" : : : : ", "", 0, "InvalidParameterValue"},
	} {
		_, err := w.startMove(c.source, c.target, c.rate)
		t.Log(name)
		wantCode(t, err, c.code)
	}
	_, err := w.client.CancelMessageMoveTask(t.Context(), &awssqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("x")})
	wantCode(t, err, "InvalidParameterValue")
	_, err = w.client.ListMessageMoveTasks(t.Context(), &awssqs.ListMessageMoveTasksInput{SourceArn: aws.String(arn("nothing"))})
	wantError[*types.ResourceNotFoundException](t, err)
}

func TestMoveTaskOfAFIFOQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.fifo("dead.fifo")
	url := w.fifo("q.fifo", "RedrivePolicy", redrive("dead.fifo", 1))
	w.sendFIFO(url, "a", "a1", "a2", "a3")
	w.returned(url, 10)
	w.wantBodies(w.receive(url, 10))
	w.wantDepth(dead, "dead.fifo", 3, 0, 0)
	_, err := w.startMove("dead.fifo", "", 0)
	must(t, 0, err)
	w.clock.Advance(time.Second)
	w.wantMove("dead.fifo", "COMPLETED", 3, 3)
	w.wantBodies(w.receive(url, 10), "a1", "a2", "a3")
}
