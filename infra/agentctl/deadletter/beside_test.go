package deadletter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jonboulle/clockwork"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/task"
)

// Somebody else deletes the message while it is being redriven, or the receipt handle is too old: it is no loss.
func TestAMessageThatVanishesMeanwhile(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		l := b.dead("echo", "th-1", "MODEL_DOWN")
		b.wire.before = func(call, _ string) error {
			if call == "send" {
				_, err := b.wire.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &b.config.DeadLetterURL})
				return err
			}
			return nil
		}
		if r := b.redrive(modelDown, deadletter.RedriveOptions{}); r.Redriven != 1 || !r.Whole() {
			t.Errorf("got %+v, want it redriven", r)
		}
		if got := b.work(""); !slices.Equal(got, []task.ID{l.id}) {
			t.Errorf("the worker got %v, want %v", got, l.id)
		}
	})
}

// Two at the same queue: each message is redriven by one of them.
func TestTwoRedriveAtOnce(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		for i := range 60 {
			b.dead("echo", fmt.Sprint("th-", i), "MODEL_DOWN")
		}
		sum := make(chan int, 2)
		for range 2 {
			go func() {
				r, err := b.queue().Redrive(t.Context(), modelDown, deadletter.RedriveOptions{})
				if err != nil {
					t.Errorf("Redrive: %v", err)
				}
				sum <- r.Redriven
			}()
		}
		if got := <-sum + <-sum; got != 60 {
			t.Errorf("the two say that they have redriven %d, want 60", got)
		}
		for id, n := range b.wire.copies(t, b.config.Tasks) {
			if n != 1 {
				t.Errorf("task %s was copied %d times, want once", id, n)
			}
		}
		b.wantDead(0)
	})
}

// Two at the same queue, whose tasks keep failing: neither takes the other's copies for dead letters of its own.
func TestTwoRedriveAtOnceWhatFailsAgain(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		const n = 12
		for i := range n {
			b.dead("echo", fmt.Sprint("th-", i), "MODEL_DOWN")
		}
		r, other := b.redriveBeside(b.queue())
		if other.Redriven != n || r.Redriven != 0 || r.Again != n || !r.Whole() {
			b.Errorf("got %d redriven by the one, and by the other %+v; want %d, and none but %[3]d that have failed again", other.Redriven, r, n)
		}
		b.wantDead(n)
	})
}

// Whether a message is the other's copy cannot be told while the other has not noted it.
func TestTwoRedriveAtOnceAndOneDoesNotNoteIt(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.dead("echo", "th-1", "MODEL_DOWN")
	forgetful := b.queue()
	forgetful.Store = forgetfulStore{b.store}
	r, other := b.redriveBeside(forgetful)
	if other.Redriven != 1 || r.Redriven != 0 || r.Uncertain != 1 || r.Whole() {
		b.Errorf("got %d redriven by the one, and by the other %+v; want 1, and one that is uncertain", other.Redriven, r)
	}
	b.wantDead(1)
}

// The other notes its copy when the first has looked at it once: what was uncertain until then is so no more.
func TestTwoRedriveAtOnceAndOneNotesItLate(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.dead("echo", "th-1", "MODEL_DOWN")
	late := &lateStore{Store: b.store}
	another := b.queue()
	another.Store = late
	var calls atomicCounter
	var other deadletter.Report
	b.wire.before = func(string, string) error {
		if calls.next() > 1 {
			return nil
		}
		var err error
		if other, err = another.Redrive(t.Context(), modelDown, deadletter.RedriveOptions{}); err != nil {
			t.Errorf("Redrive: %v", err)
		}
		b.keepDeadLettering("MODEL_DOWN")()
		b.wire.before = func(call, _ string) error {
			if call != "depth" || late.note == nil {
				return nil
			}
			note := late.note // after the first's first pass
			late.note = nil
			return note(t.Context())
		}
		return nil
	}
	r := b.redrive(modelDown, deadletter.RedriveOptions{})
	if other.Redriven != 1 || r.Redriven != 0 || r.Again != 1 || !r.Whole() {
		t.Errorf("got %d redriven by the one, and by the other %+v; want 1, and none but one that has failed again", other.Redriven, r)
	}
	b.wantDead(1)
}

// redriveBeside begins a redrive, has another one redrive everything meanwhile and a worker fail it again, and then lets the
// first go on.
func (b *bench) redriveBeside(another *deadletter.Queue) (r, other deadletter.Report) {
	b.Helper()
	var calls atomicCounter
	b.wire.before = func(string, string) error {
		if calls.next() == 1 {
			var err error
			if other, err = another.Redrive(b.Context(), modelDown, deadletter.RedriveOptions{}); err != nil {
				b.Errorf("Redrive: %v", err)
			}
			b.keepDeadLettering("MODEL_DOWN")()
		}
		return nil
	}
	return b.redrive(modelDown, deadletter.RedriveOptions{}), other
}

// The same of messages that do not say which task they are: each copy is another task, and no record ties the two.
func TestTwoRedriveAtOnceWhatSaysNoTask(t *testing.T) {
	t.Parallel()
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clockwork.NewFakeClockAt(time.Now())
			b := startAt(t, fifo, clock)
			const n = 5
			for i := range n {
				b.put(`{"task":"echo","thread_id":"their-thread","text":"hi"}`, fmt.Sprint("th-", i))
			}
			theirs := deadletter.Selection{Types: []string{"echo"}}
			var calls atomicCounter
			var other deadletter.Report
			b.wire.before = func(string, string) error {
				if calls.next() == 2 { // the first was for the depth
					clock.Advance(time.Second)
					var err error
					if other, err = b.queue().Redrive(t.Context(), theirs, deadletter.RedriveOptions{}); err != nil {
						t.Errorf("Redrive: %v", err)
					}
					b.keepDeadLettering("MODEL_DOWN")()
				}
				return nil
			}
			r := b.redrive(theirs, deadletter.RedriveOptions{})
			if other.Redriven != n || r.Redriven != 0 || r.Newer != n || !r.Whole() {
				t.Errorf("got %d redriven by the one, and by the other %+v; want %d, and none but %[3]d that are newer", other.Redriven, r, n)
			}
			b.wantDead(n)
		})
	}
}

// Somebody looks while the first pass goes on, and is done before its end.
func TestWhatOthersHideDuringAPassIsAwaited(t *testing.T) {
	t.Parallel()
	for name, redrive := range map[string]func(*bench) (deadletter.Report, error){
		"redrive": func(b *bench) (deadletter.Report, error) {
			return b.queue().Redrive(b.Context(), modelDown, deadletter.RedriveOptions{})
		},
		"purge": func(b *bench) (deadletter.Report, error) {
			return b.queue().Purge(b.Context(), modelDown, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, false)
			const n = 12
			for range n {
				b.dead("echo", "th-1", "MODEL_DOWN")
			}
			hidden, err := b.wire.Client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: &b.config.DeadLetterURL, MaxNumberOfMessages: 10, VisibilityTimeout: 60,
			})
			if err != nil || len(hidden.Messages) == 0 {
				t.Fatalf("hide some: got %v, %v", hidden, err)
			}
			var depths atomicCounter
			b.wire.before = func(call, _ string) error {
				if call != "depth" || depths.next() != 2 { // the first was before the pass
					return nil
				}
				for _, m := range hidden.Messages {
					if _, err := b.wire.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &b.config.DeadLetterURL, ReceiptHandle: m.ReceiptHandle}); err != nil {
						t.Errorf("give back: %v", err)
					}
				}
				return nil
			}
			r, err := redrive(b)
			if err != nil || r.Redriven+r.Purged != n || r.Unseen != 0 {
				t.Errorf("got %+v, %v; want all %d dealt with", r, err, n)
			}
			b.wantDead(0)
		})
	}
}
