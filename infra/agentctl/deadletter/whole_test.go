package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jonboulle/clockwork"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

func TestAWholeQueueIsMoved(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		for i := range 25 {
			b.dead("echo", fmt.Sprint("th-", i%2), "MODEL_DOWN")
		}
		looks := 0
		m, err := b.queue().MoveAll(t.Context(), 0, func(deadletter.Move) { looks++ })
		if err != nil || m.Status != "COMPLETED" || m.Moved != 25 || m.ToMove != 25 || m.Joined || looks == 0 {
			t.Errorf("got %+v, %v after %d looks; want 25 moved", m, err, looks)
		}
		b.wantDead(0)
		for _, id := range b.work("") {
			if rec := b.record(id); rec.Status != checkpoint.Succeeded || len(rec.Attempts) != 2 {
				t.Errorf("task %s: got %s after %d attempts, want succeeded after 2", id, rec.Status, len(rec.Attempts))
			}
		}
	})
}

// An interruption cancels the move, and what was moved stays moved.
func TestAnInterruptionCancelsTheMove(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClockAt(time.Now())
	b := startAt(t, false, clock)
	for range 30 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m, err := b.queue().MoveAll(ctx, 20, func(m deadletter.Move) {
		if m.Moved == 3 {
			cancel()
			return
		}
		clock.Advance(time.Second / 20)
	})
	if !errors.Is(err, context.Canceled) || m.Status != "CANCELLED" || m.Moved != 3 {
		t.Errorf("got %+v, %v; want three moved, cancelled, %v", m, err, context.Canceled)
	}
	b.wantDead(30 - int(m.Moved))
	if got := len(b.work("")); got != int(m.Moved) {
		t.Errorf("the worker got %d, want the %d that were moved", got, m.Moved)
	}
	if _, err := b.queue().MoveAll(t.Context(), 0, func(deadletter.Move) { clock.Advance(time.Second) }); err != nil {
		t.Errorf("the rest cannot be moved: %v", err)
	}
	b.wantDead(0)
}

// The alarm's function looks into the queue just when the move begins.
func TestWhatIsHiddenIsMovedWhenItIsBack(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.config.Hide = time.Minute // for which it is patient
	for range 12 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	hidden, err := b.wire.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &b.config.DeadLetterURL, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, VisibilityTimeout: 1,
	})
	if err != nil || len(hidden.Messages) != 10 {
		t.Fatalf("hide ten: got %v, %v", hidden, err)
	}
	m, err := b.queue().MoveAll(t.Context(), 0, nil)
	if err != nil || m.Moved != 12 || m.ToMove != 12 || m.Status != "COMPLETED" {
		t.Errorf("got %+v, %v; want all 12 moved", m, err)
	}
	b.wantDead(0)
}

// Whoever died while SQS moved comes back to the same move.
func TestARunningMoveIsJoined(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClockAt(time.Now())
	b := startAt(t, false, clock)
	for range 10 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	_, err := b.wire.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{
		SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:" + b.name), DestinationArn: aws.String("arn:aws:sqs:us-east-1:000000000000:tasks"),
		MaxNumberOfMessagesPerSecond: aws.Int32(20),
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.queue().MoveAll(t.Context(), 0, func(deadletter.Move) { clock.Advance(time.Second) })
	if err != nil || !m.Joined || m.Moved != 10 || m.Status != "COMPLETED" {
		t.Errorf("got %+v, %v; want the running move, completed", m, err)
	}
}

func TestAMoveThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClockAt(time.Now())
	b := startAt(t, false, clock)
	for range 10 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	deleted := false
	_, err := b.queue().MoveAll(t.Context(), 10, func(deadletter.Move) {
		if !deleted {
			deleted = true
			if _, err := b.wire.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &b.config.URL}); err != nil {
				t.Error(err)
			}
		}
		clock.Advance(time.Second)
	})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an error that says why", err)
	}
	if visible, _, _, _ := b.server.Depth(b.name); visible == 0 {
		t.Error("what could not be moved is gone")
	}
}

// A move takes along everything, also what an interrupted redrive has copied already: that is brought to its end first.
func TestFinishTouchesOnlyWhatHasBegun(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	for range 12 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	mortal := &mortalStore{Store: b.store}
	b.config.Store = mortal
	b.wire.before = deathAt("delete", func() { mortal.dead.Store(true) })
	_, _ = b.queue().Redrive(t.Context(), modelDown, deadletter.RedriveOptions{})
	b.config.Store, b.wire.before = b.store, nil
	sent := len(b.wire.sent)
	b.work("")
	stop := b.keepWorking("")
	r, err := b.queue().Finish(t.Context(), deadletter.RedriveOptions{})
	stop()
	if err != nil || r.Finished < sent-3 || r.Uncertain != 0 {
		t.Errorf("got %+v, %v; want the %d copied but for those 3 that were deleted", r, err, sent)
	}
	b.wantDead(12 - len(b.wire.sent))
	for id, n := range b.wire.copies(t, b.config.Tasks) {
		if n != 1 {
			t.Errorf("task %s was copied %d times, want once", id, n)
		}
	}
}

func TestASelectionIsPurged(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		gone := b.dead("echo", "th-1", "MODEL_REFUSED")
		unseen := b.dead("shout", "th-2", "")
		stay := b.dead("echo", "th-1", "MODEL_DOWN")
		r, err := b.queue().Purge(t.Context(), deadletter.Selection{Reasons: []string{"MODEL_REFUSED", task.CodeDeadLettered}}, nil)
		if err != nil || r.Purged != 2 || r.Seen != 3 || !r.Whole() {
			t.Errorf("got %+v, %v; want 2 of 3 purged", r, err)
		}
		b.wantDead(1)
		if len(b.wire.sent) != 0 {
			t.Errorf("a purge has sent %d messages", len(b.wire.sent))
		}
		for _, l := range []letter{gone, unseen, stay} {
			if rec := b.record(l.id); rec.Status != checkpoint.Failed {
				t.Errorf("task %s: got %s, want failed", l.id, rec.Status)
			}
		}
	})
}

func TestAWholeQueueIsPurgedOnceInAMinute(t *testing.T) {
	t.Parallel()
	b := start(t, true)
	unseen := b.dead("echo", "th-1", "")
	for range 20 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	if err := b.queue().PurgeAll(t.Context()); err != nil {
		t.Fatalf("PurgeAll: %v", err)
	}
	b.wantDead(0)
	if rec := b.record(unseen.id); rec.Status != checkpoint.Failed {
		t.Errorf("a task that no worker saw: got %s, want failed", rec.Status)
	}
	b.dead("echo", "th-1", "MODEL_DOWN")
	if err := b.queue().PurgeAll(t.Context()); !errors.Is(err, deadletter.ErrPurgedJustNow) {
		t.Errorf("the second purge: got %v, want %v", err, deadletter.ErrPurgedJustNow)
	}
	b.wantDead(1)
}

// Somebody hides a part, so that one task does not do, and the interruption comes before the next.
func TestAnInterruptionBetweenTwoMoves(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	for range 12 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	hidden, err := b.wire.Client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &b.config.DeadLetterURL, MaxNumberOfMessages: 2, VisibilityTimeout: 60,
	})
	if err != nil || len(hidden.Messages) == 0 {
		t.Fatalf("hide two: got %v, %v", hidden, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m, err := b.queue().MoveAll(ctx, 0, func(m deadletter.Move) {
		if m.Status == "COMPLETED" {
			cancel()
		}
	})
	if want := int64(12 - len(hidden.Messages)); !errors.Is(err, context.Canceled) || m.Status != "CANCELLED" || m.Moved != want || m.ToMove != 12 {
		t.Errorf("got %+v, %v; want %d of 12 moved, cancelled", m, err, want)
	}
}

// The interruption comes while SQS is asked to move: whether it has begun, nobody was told.
func TestAnInterruptionAsTheMoveBegins(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClockAt(time.Now())
	b := startAt(t, false, clock)
	for range 10 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.wire.after = func(call, _ string) error {
		if call != "move" {
			return nil
		}
		cancel()
		return ctx.Err()
	}
	m, err := b.queue().MoveAll(ctx, 1, nil)
	if !errors.Is(err, context.Canceled) || m.Status != "CANCELLED" {
		t.Errorf("got %+v, %v; want it cancelled", m, err)
	}
	out, err := b.wire.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:" + b.name)})
	if err != nil || len(out.Results) != 1 || *out.Results[0].Status != "CANCELLED" {
		t.Errorf("got %+v, %v; want one task, cancelled", out, err)
	}
}

// The interruption comes because nothing answers any more: nobody can say then that the move has ended.
func TestAnInterruptionOfWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]string{"as it begins": "move", "while it goes on": "moves"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startAt(t, false, clockwork.NewFakeClockAt(time.Now()))
			for range 10 {
				b.dead("echo", "th-1", "MODEL_DOWN")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cut := func(call, _ string) error {
				if call == during {
					cancel()
				}
				if ctx.Err() != nil {
					return errLost
				}
				return nil
			}
			b.wire.before, b.wire.after = cut, cut
			m, err := b.queue().MoveAll(ctx, 1, nil)
			if err == nil || errors.Is(err, context.Canceled) || m.Status != "UNKNOWN" {
				t.Errorf("got %+v, %v; want an error that says more than that it was interrupted", m, err)
			}
		})
	}
}
