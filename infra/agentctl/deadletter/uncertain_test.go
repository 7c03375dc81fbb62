package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/infra/agentctl/deadletter"
)

// begun makes a dead letter whose redrive has begun and no more is known of it.
func (b *bench) begun() letter {
	b.Helper()
	l := b.dead("echo", "th-1", "MODEL_DOWN")
	if _, err := b.store.BeginRedrive(b.Context(), b.record(l.id), l.messageID, "MODEL_DOWN"); err != nil {
		b.Fatal(err)
	}
	return l
}

// copyOf puts the copy of a letter on the queue, as the redrive that was interrupted did.
func (b *bench) copyOf(l letter) {
	b.Helper()
	body := fmt.Sprintf(`{"task":"echo","task_id":%q,"text":"hello"}`, l.id)
	if _, err := b.wire.SendMessage(b.Context(), &sqs.SendMessageInput{QueueUrl: &b.config.URL, MessageBody: &body}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) wantCopies(want int) {
	b.Helper()
	if got := len(b.wire.sent); got != want {
		b.Errorf("got %d copies, want %d", got, want)
	}
}

// A queue's counts lag behind: for a minute, empty does not mean empty.
func TestCountsAreGivenTimeToSettle(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.copyOf(b.begun())
	b.config.Settle = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looks atomic.Int64
	b.wire.before = func(call, what string) error {
		switch {
		case call == "depth" && what == b.config.URL:
			return errLag
		case call == "receive" && looks.Add(1) > 20: // nobody waits an hour
			cancel()
		}
		return nil
	}
	if r, err := b.queue().Redrive(ctx, modelDown, deadletter.RedriveOptions{}); !errors.Is(err, context.Canceled) || r.Uncertain != 1 {
		t.Errorf("got %+v, %v; want it uncertain", r, err)
	}
	b.wantCopies(1)
}

// A worker takes the copy between the look at the record and the look at the queue.
func TestACopyThatIsTakenJustThen(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	l := b.begun()
	b.copyOf(l)
	took := false
	b.wire.before = func(call, what string) error {
		if call == "depth" && what == b.config.URL && !took {
			took = true
			b.work("MODEL_DOWN_AGAIN")
		}
		return nil
	}
	if r := b.redrive(modelDown, deadletter.RedriveOptions{}); r.Finished != 1 || r.Redriven != 0 {
		t.Errorf("got %+v, want the message deleted and no more", r)
	}
	b.wantCopies(1)
	b.wantDead(0)
}

// The copy never reached a worker and was dead-lettered too. The queue is empty, and no claim tells of it.
func TestACopyThatCameBackUnseen(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	l := b.begun()
	back := b.put(fmt.Sprintf(`{"task":"echo","task_id":%q,"text":"hello"}`, l.id), "th-1")
	if r := b.redrive(modelDown, deadletter.RedriveOptions{}); r.Finished != 1 || r.Redriven != 0 {
		t.Errorf("got %+v, want the message deleted and no copy sent", r)
	}
	b.wantCopies(0)
	if got, err := b.queue().Show(t.Context(), back); err != nil || len(got) != 1 {
		t.Errorf("the copy: got %+v, %v; want it to lie there", got, err)
	}
	b.wantDead(1)
}

// A copy of a message that does not say which task it is becomes another task. Nothing tells whether it was sent.
func TestAForeignMessage(t *testing.T) {
	t.Parallel()
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, fifo)
			b.put(`{"task":"echo","thread_id":"their-thread","text":"hi"}`, "th-1")
			everything := deadletter.Selection{Types: []string{"echo"}}
			b.wire.after = func(string, string) error { return errLost }
			ctx, cancel := context.WithCancel(t.Context())
			b.wire.before = func(call, _ string) error {
				if call == "send" {
					cancel()
				}
				return nil
			}
			_, _ = b.queue().Redrive(ctx, everything, deadletter.RedriveOptions{})
			b.wire.before, b.wire.after = nil, nil
			b.work("")
			r := b.redrive(everything, deadletter.RedriveOptions{})
			if fifo { // SQS knows the copy
				if r.Redriven != 1 {
					t.Errorf("got %+v, want it redriven", r)
				}
			} else if r.Uncertain != 1 {
				t.Errorf("got %+v, want it uncertain", r)
			}
			b.wantCopies(1)
		})
	}
}

// The SDK repeats a call whose answer is lost. Of a send to a standard queue that would make two copies.
func TestALostAnswerIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.dead("echo", "th-1", "MODEL_DOWN")
	opts := b.wire.Options().Copy()
	lossy := &lossy{next: opts.HTTPClient}
	opts.HTTPClient, opts.RetryMaxAttempts, opts.Retryer = lossy, 0, nil
	b.wire.Client = sqs.New(opts)
	stop := b.keepWorking("MODEL_DOWN_AGAIN")
	r := b.redrive(modelDown, deadletter.RedriveOptions{})
	stop()
	if lossy.sends.Load() != 1 || r.Finished != 1 {
		t.Errorf("got %d sends and %+v, want one and the message deleted", lossy.sends.Load(), r)
	}
}

// lossy answers a send with a fault, after it has taken effect.
type lossy struct {
	next  sqs.HTTPClient
	sends atomic.Int64
}

func (l *lossy) Do(r *http.Request) (*http.Response, error) {
	res, err := l.next.Do(r)
	if err == nil && strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SendMessage") {
		l.sends.Add(1)
		res.StatusCode = http.StatusServiceUnavailable
	}
	return res, err
}

// At a low rate a batch takes longer than its messages are hidden for.
func TestWhatIsHeldStaysHidden(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	for range 10 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	var twice atomic.Int64
	other := deadletter.New(b.config)
	r := b.redrive(modelDown, deadletter.RedriveOptions{Rate: 2, Progress: func(int) {
		l, err := other.Look(t.Context(), deadletter.Selection{})
		if err != nil {
			t.Error(err)
		}
		twice.Add(int64(l.Seen))
	}})
	if r.Redriven != 10 || r.Finished != 0 || twice.Load() != 0 {
		t.Errorf("got %+v, and others saw %d; want 10 redriven at once, and unseen by others", r, twice.Load())
	}
}
