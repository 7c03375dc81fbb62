package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentworker/internal/emulator/sqs/engine"
)

func receive(t *testing.T, e *engine.Engine, name string, most int) []engine.Message {
	t.Helper()
	got, err := e.Receive(t.Context(), name, engine.Demand{Max: most})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A client may hang up after its poll was woken and before it gets the lock.
func TestReceiveForAClientThatIsGoneTakesNothing(t *testing.T) {
	t.Parallel()
	e := open(t, engine.Options{Clock: clockwork.NewFakeClock()})
	create(t, e, "standard")
	send(t, e, "standard", 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := e.Receive(gone, "standard", engine.Demand{Max: 1}); !errors.Is(err, context.Canceled) || len(got) > 0 {
		t.Errorf("Receive = %v, %v, want no message and context.Canceled", got, err)
	}
	if visible, notVisible, _, _ := e.Depth("standard"); visible != 1 || notVisible != 0 {
		t.Errorf("depth = %d, %d, want the message still there and not in flight", visible, notVisible)
	}
}

// A receive with visibility 0 must not find its own messages again.
func TestReceiveTakesNoMessageTwice(t *testing.T) {
	t.Parallel()
	e := open(t, engine.Options{Clock: clockwork.NewFakeClock()})
	for _, name := range []string{"standard", "ordered.fifo"} {
		create(t, e, name)
		send(t, e, name, 1)
		now := time.Duration(0)
		got, err := e.Receive(t.Context(), name, engine.Demand{Max: 10, Visibility: &now})
		if err != nil || len(got) != 1 {
			t.Errorf("%s: received %d messages, error %v, want 1", name, len(got), err)
		}
		if again := receive(t, e, name, 10); len(again) != 1 || again[0].ReceiveCount != 2 {
			t.Errorf("%s: second receive = %+v, want the second delivery", name, again)
		}
	}
}

// The same calls at the same times have the same outcome, whatever ids are given.
func TestSameCallsSameOutcome(t *testing.T) {
	t.Parallel()
	run := func() []string {
		clock := clockwork.NewFakeClockAt(time.Unix(1_800_000_000, 0))
		e := open(t, engine.Options{Clock: clock})
		create(t, e, "standard")
		var seen []string
		for i := range 300 {
			delay := time.Duration(i%7) * time.Second
			if _, err := e.Send("standard", engine.Outgoing{Body: fmt.Sprint(i), GroupID: fmt.Sprint(i % 5), Delay: &delay}); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Second)
			for _, m := range receive(t, e, "standard", i%3) {
				seen = append(seen, m.Body)
			}
		}
		return seen
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Errorf("two runs received %q and %q, want the same", a, b)
	}
}

func TestClosedEngine(t *testing.T) {
	t.Parallel()
	e := open(t, engine.Options{Dir: t.TempDir()})
	create(t, e, "standard")
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	if err := e.QueueExists("standard"); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("error = %v, want ErrClosed", err)
	}
}

// Two tasks may start at the same instant; the newest is listed first all the same, also after a restart.
func TestMoveTasksKeepTheirOrderOverARestart(t *testing.T) {
	t.Parallel()
	opts := engine.Options{Clock: clockwork.NewFakeClock(), Dir: t.TempDir()}
	e := open(t, opts)
	create(t, e, "dead")
	policy := map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":1}`}
	if err := e.CreateQueue("work", policy, nil); err != nil {
		t.Fatal(err)
	}
	const source = "arn:aws:sqs:us-east-1:000000000000:dead"
	for rate := 1; rate <= 6; rate++ {
		handle, err := e.StartMove(source, "", rate)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.CancelMove(handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	tasks, err := open(t, opts).ListMoves(source, 10)
	if err != nil || len(tasks) != 6 {
		t.Fatalf("%d tasks, error %v, want 6", len(tasks), err)
	}
	for i, task := range tasks {
		if task.Rate != 6-i {
			t.Errorf("task %d has rate %d, want %d", i, task.Rate, 6-i)
		}
	}
}

// Test suites make queues under ever new names.
func TestDeletedQueuesAreForgotten(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClock()
	opts := engine.Options{Clock: clock, Dir: t.TempDir()}
	e := open(t, opts)
	for i := range 5 {
		dead := fmt.Sprint("dead", i)
		create(t, e, dead)
		arn := "arn:aws:sqs:us-east-1:000000000000:" + dead
		policy := map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"` + arn + `","maxReceiveCount":1}`}
		if err := e.CreateQueue("work", policy, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := e.StartMove(arn, "", 1); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"work", dead} {
			if err := e.DeleteQueue(name); err != nil {
				t.Fatal(err)
			}
		}
		clock.Advance(time.Minute)
	}
	if names, tasks := engine.Remembered(e); names > 2 || tasks > 0 {
		t.Errorf("%d names and %d tasks are kept, want the last minute's two names and no task", names, tasks)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, tasks := engine.Remembered(open(t, opts)); tasks > 0 {
		t.Errorf("%d tasks are kept over a restart, want none", tasks)
	}
}
