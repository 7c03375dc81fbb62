package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// Case: malformed response (golden bytes)
func TestTheResponseIsAListEvenWhenItIsEmpty(t *testing.T) {
	t.Parallel()
	f := setUp(t, nil)
	_, m := newTask("a")
	for want, records := range map[string][]events.SQSMessage{
		`{"batchItemFailures":[]}`:                           {m},
		`{"batchItemFailures":[{"itemIdentifier":"m-bad"}]}`: {{MessageId: "m-bad", Body: "hello", EventSourceARN: queueARN}},
	} {
		out, err := invoke(t.Context(), f, events.SQSEvent{Records: records})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(out); err != nil || string(got) != want {
			t.Errorf("response is %s (%v), want %s", got, err, want)
		}
	}
}

// Two of three records are done when the third sleeps beyond the function's deadline: they are kept, it is handed back
// in time, and what it still does has no effect.
//
// Case: timeout mid-batch (finished records are kept, the others handed back)
func TestARecordThatOutlivesTheDeadlineIsHandedBackInTime(t *testing.T) {
	t.Parallel()
	var release chan struct{}
	var late chan error
	var runs atomic.Int64
	inBubble(t, script{"sleep": func(ctx context.Context, run task.Run) (string, error) {
		<-release // ignores its context
		_, err := task.LastStep(context.WithoutCancel(ctx), run, "late", func(context.Context, *task.Effects) (string, error) {
			runs.Add(1)
			return "late", nil
		})
		late <- err
		return "", err
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		release, late = make(chan struct{}), make(chan error, 1)
		id1, m1 := newTask("a")
		id2, m2 := newTask("b")
		id3, m3 := newTask("sleep")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		failed := f.handleIn(ctx, t, m1, m2, m3)
		if ctx.Err() != nil {
			t.Errorf("the answer came after the function's deadline")
		}
		wantFailed(t, failed, m3)
		f.wantStatus(t, id1, checkpoint.Succeeded, "")
		f.wantStatus(t, id2, checkpoint.Succeeded, "")
		f.wantStatus(t, id3, checkpoint.Retrying, task.CodeDeadline)
		f.queue.wantAfter(t, m3, 1, 3)
		close(release)
		if err := <-late; err == nil {
			t.Error("the late commit was accepted")
		}
		if runs.Load() != 0 {
			t.Error("the step was begun beside the next attempt's")
		}
		f.wantStatus(t, id3, checkpoint.Retrying, task.CodeDeadline)
		if !strings.Contains(f.metrics.String(), `"DeadlineHandedBack":[1]`) {
			t.Errorf("no DeadlineHandedBack in %s", f.metrics)
		}
	})
}

// Case: panic fails its record only
func TestAPanicFailsItsRecordOnly(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{
		"panic": func(context.Context, task.Run) (string, error) { panic("the question's text") },
		"child": func(ctx context.Context, _ task.Run) (string, error) {
			return "", task.Go(ctx, func(context.Context) error { panic("in a child goroutine") })
		},
	})
	id1, m1 := newTask("a")
	id2, m2 := newTask("panic")
	id3, m3 := newTask("child")
	id4, m4 := newTask("b")
	wantFailed(t, f.handle(t, m1, m2, m3, m4), m2, m3)
	f.wantStatus(t, id1, checkpoint.Succeeded, "")
	f.wantStatus(t, id2, checkpoint.Retrying, task.CodePanic)
	f.wantStatus(t, id3, checkpoint.Retrying, task.CodePanic)
	f.wantStatus(t, id4, checkpoint.Succeeded, "")
	if log := f.log.String(); !strings.Contains(log, "attempt_test.go") || strings.Contains(log, "question's text") {
		t.Errorf("the log must hold the stack and not the panic's value:\n%s", log)
	}
}

// Case: backoff vs heartbeat (a visibility is set once, and nothing resets it)
func TestWhatAnErrorMeans(t *testing.T) {
	t.Parallel()
	broken := errors.New("model is away")
	tests := map[string]struct {
		err       error
		delivery  func(events.SQSMessage) events.SQSMessage
		status    checkpoint.Status
		code      string
		low, high int32
	}{
		"plain":                 {err: broken, status: checkpoint.Retrying, code: task.CodeFailed, low: 2, high: 3},
		"with a code":           {err: task.WithCode("MODEL_DOWN", broken), status: checkpoint.Retrying, code: "MODEL_DOWN", low: 2, high: 3},
		"retry after":           {err: task.RetryAfter(broken, time.Minute), status: checkpoint.Retrying, code: task.CodeFailed, low: 60, high: 60},
		"permanent":             {err: task.Permanent(broken), status: checkpoint.Failed, code: task.CodeFailed},
		"permanent, deep":       {err: fmt.Errorf("call: %w", task.Failf("BAD_INPUT", "no")), status: checkpoint.Failed, code: "BAD_INPUT"},
		"last delivery of all":  {err: broken, delivery: fifth, status: checkpoint.Failed, code: task.CodeFailed},
		"retry after, too late": {err: task.RetryAfter(broken, time.Minute), delivery: fifth, status: checkpoint.Failed, code: task.CodeFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, script{"fail": func(context.Context, task.Run) (string, error) { return "", tt.err }})
			id, m := newTask("fail")
			if tt.delivery != nil {
				m = tt.delivery(m)
			}
			wantFailed(t, f.handle(t, m), m)
			rec := f.wantStatus(t, id, tt.status, tt.code)
			f.queue.wantAfter(t, m, tt.low, tt.high)
			if due := !rec.NextRetryAt.IsZero(); due != (tt.status == checkpoint.Retrying) {
				t.Errorf("next retry is at %v for a task that is %s", rec.NextRetryAt, rec.Status)
			}
			if will := strings.Contains(f.metrics.String(), "WillDeadLetter"); will != (tt.status == checkpoint.Failed) {
				t.Errorf("WillDeadLetter is in the metrics: %v, for a task that is %s", will, rec.Status)
			}
		})
	}
}

func fifth(m events.SQSMessage) events.SQSMessage {
	m.Attributes["ApproximateReceiveCount"] = "5"
	return m
}

// A task gets one try and three retries, with a longer pause before each; then it is failed, and every further delivery
// of the same message is handed back at once, until SQS dead-letters it.
func TestRetriesEndAfterTheirNumber(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	f := setUp(t, script{"fail": func(context.Context, task.Run) (string, error) {
		runs.Add(1)
		return "", errors.New("no")
	}})
	id, m := newTask("fail")
	m.Attributes["ApproximateReceiveCount"] = "0"
	for i, want := range []struct {
		status    checkpoint.Status
		low, high int32
	}{{checkpoint.Retrying, 2, 3}, {checkpoint.Retrying, 4, 5}, {checkpoint.Retrying, 8, 10}, {checkpoint.Failed, 0, 0}, {checkpoint.Failed, 0, 0}} {
		m = again(m)
		wantFailed(t, f.handle(t, m), m)
		f.queue.wantAfter(t, m, want.low, want.high)
		if rec := f.record(t, id); rec.Status != want.status {
			t.Errorf("after delivery %d the task is %s, want %s", i+1, rec.Status, want.status)
		}
	}
	if rec := f.record(t, id); runs.Load() != 4 || len(rec.Attempts) != 4 {
		t.Errorf("%d runs and %d attempts, want 4 of each", runs.Load(), len(rec.Attempts))
	}
	redriven := again(m)
	redriven.MessageId, redriven.ReceiptHandle, redriven.Attributes["ApproximateReceiveCount"] = "m-redriven", "r-redriven", "1"
	wantFailed(t, f.handle(t, redriven), redriven)
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
	f.queue.wantAfter(t, redriven, 2, 3)
}

// Case: at-least-once on FIFO too (the second delivery is a no-op)
func TestATaskThatSucceededIsAcknowledgedWhenItComesAgain(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	f := setUp(t, script{"count": func(ctx context.Context, run task.Run) (string, error) { return step(ctx, run, "one", &runs) }})
	id, m := newTask("count")
	wantFailed(t, f.handle(t, m))
	for range 20 { // the thread goes on without it
		var batch []events.SQSMessage
		for range 10 {
			_, other := newTask("other")
			batch = append(batch, other)
		}
		wantFailed(t, f.handle(t, batch...))
	}
	redriven := again(m)
	redriven.MessageId = "m-redriven"
	wantFailed(t, f.handle(t, again(m), redriven))
	if rec := f.record(t, id); runs.Load() != 1 || len(rec.Attempts) != 1 || len(rec.Steps) != 2 {
		t.Errorf("%d runs, record %+v; want one run, one attempt, two steps", runs.Load(), rec)
	}
	if !strings.Contains(f.metrics.String(), `"Duplicates":[2]`) {
		t.Errorf("no two Duplicates in the metrics")
	}
}

// Case: at-least-once on FIFO too (one message delivered twice)
func TestOneMessageInTwoHandsRunsOnce(t *testing.T) {
	t.Parallel()
	var began, release chan struct{}
	inBubble(t, script{"wait": func(context.Context, task.Run) (string, error) {
		close(began) // a second run would panic
		<-release
		return "once", nil
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		began, release = make(chan struct{}), make(chan struct{})
		id, m := newTask("wait")
		first := make(chan []string)
		go func() { first <- f.handle(t, m) }()
		<-began
		second := again(m)
		second.ReceiptHandle = "r-second"
		wantFailed(t, f.handle(t, second), second)
		f.queue.wantAfter(t, second, 61, 61) // when the first one's lease has ended
		close(release)
		wantFailed(t, <-first)
		f.wantStatus(t, id, checkpoint.Succeeded, "")
	})
}

// Case: non-JSON body
func TestWhatIsNoTaskFailsForGoodAndAlone(t *testing.T) {
	t.Parallel()
	f := setUp(t, nil)
	bad := func(id, body string) events.SQSMessage {
		_, m := newTask("x")
		m.MessageId, m.ReceiptHandle, m.Body = id, "r-"+id, body
		return m
	}
	id, good := newTask("a")
	batch := []events.SQSMessage{
		bad("m-text", "hello"), good, bad("m-type", `{"task":"unknown"}`), bad("m-field", `{"task":"test","do":7}`),
	}
	wantFailed(t, f.handle(t, batch...), batch[0], batch[2], batch[3])
	f.wantStatus(t, id, checkpoint.Succeeded, "")
	records, _, err := f.store.History(t.Context(), task.Unparsed, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	for _, r := range records {
		codes[r.MessageID] = r.Error.Code
	}
	want := map[string]string{"m-text": task.CodeMalformed, "m-field": task.CodeInvalidField}
	for message, code := range want {
		if codes[message] != code {
			t.Errorf("reason of %s is %q, want %q", message, codes[message], code)
		}
	}
	wantFailed(t, f.handle(t, again(batch[0])), batch[0])
	if records, _, err = f.store.History(t.Context(), task.Unparsed, "", 10); err != nil || len(records) != len(codes) {
		t.Errorf("%d records after another delivery (%v), want still %d", len(records), err, len(codes))
	}
}

// Case: mapping not opted in (failures must not be reported in a list that is ignored)
func TestWithoutPartialResponsesTheWholeBatchFails(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"fail": func(context.Context, task.Run) (string, error) { return "", errors.New("no") }},
		func(c *worker.Config) { c.PartialBatch = false })
	_, good := newTask("a")
	_, bad := newTask("fail")
	if _, err := invoke(t.Context(), f, events.SQSEvent{Records: []events.SQSMessage{good, bad}}); !errors.Is(err, worker.ErrPartialBatchOff) {
		t.Errorf("error is %v, want %v", err, worker.ErrPartialBatchOff)
	}
	_, alone := newTask("b")
	if _, err := invoke(t.Context(), f, events.SQSEvent{Records: []events.SQSMessage{alone}}); err != nil {
		t.Errorf("a batch without failures gives %v", err)
	}
}

// While the head of a group fails, what is behind it is not begun and comes back together with it.
//
// Case: FIFO order
// Case: mixed groups
func TestWhatIsBehindAFailedHeadComesBackWithIt(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	f := setUp(t, script{
		"fail": func(context.Context, task.Run) (string, error) {
			return "", task.RetryAfter(errors.New("no"), 30*time.Second)
		},
		"count": func(context.Context, task.Run) (string, error) { ran.Add(1); return "", nil },
	})
	ordered := func(do, group string) events.SQSMessage {
		_, m := newTask(do)
		m.EventSourceARN = orderedARN
		m.Attributes["SequenceNumber"], m.Attributes["MessageGroupId"] = "1", group
		return m
	}
	batch := []events.SQSMessage{ordered("fail", "g1"), ordered("count", "g2"), ordered("count", "g1"), ordered("count", "g1")}
	wantFailed(t, f.handle(t, batch...), batch[0], batch[2], batch[3])
	if ran.Load() != 1 {
		t.Errorf("%d records ran beside the failing head, want the other group's one", ran.Load())
	}
	for _, m := range []events.SQSMessage{batch[0], batch[2], batch[3]} {
		f.queue.wantAfter(t, m, 30, 30)
	}
}

func TestALostVisibilityChangeLosesNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"fail": func(context.Context, task.Run) (string, error) { return "", errors.New("no") }})
	f.queue.fail.Store(true)
	id, m := newTask("fail")
	wantFailed(t, f.handle(t, m), m)
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
}

func TestATableThatIsAwayHandsTheRecordBack(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*brokenStore){
		"at the claim":    func(b *brokenStore) { b.claim.Store(true) },
		"at the thread":   func(b *brokenStore) { b.latest.Store(true) },
		"at the commit":   func(b *brokenStore) { b.commit.Store(true) },
		"at the very end": func(b *brokenStore) { b.commit.Store(true); b.end.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *brokenStore
			f := setUp(t, nil, func(c *worker.Config) { b = &brokenStore{Store: c.Store}; c.Store = b })
			damage(b)
			id, m := newTask("a")
			wantFailed(t, f.handle(t, m), m)
			f.queue.wantAfter(t, m, 2, 5)
			b.heal()
			if name == "at the very end" { // the lease is still there
				wantFailed(t, f.handle(t, again(m)), m)
				return
			}
			wantFailed(t, f.handle(t, again(m)))
			f.wantStatus(t, id, checkpoint.Succeeded, "")
		})
	}
}

// With the numbers that deploy, a message outlasts a table that is away for three minutes.
func TestATableThatIsAwayForMinutesDeadLettersNothing(t *testing.T) {
	t.Parallel()
	var b *brokenStore
	f := setUp(t, nil, func(c *worker.Config) { b = &brokenStore{Store: c.Store}; c.Store = b })
	b.claim.Store(true)
	_, m := newTask("a")
	for range f.MaxReceiveCount - 1 {
		wantFailed(t, f.handle(t, m), m)
		m = again(m)
	}
	var waited int32
	for _, after := range f.queue.after[m.ReceiptHandle] {
		waited += after
	}
	if waited < 3*60 {
		t.Errorf("its last delivery comes %d s after its first one, want three minutes or more", waited)
	}
}

// A task whose thread cannot be read comes back when its status says; at its last delivery it fails, since its message is about to be
// dead-lettered.
func TestATaskWhoseThreadCannotBeReadSaysWhatBecomesOfIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		receive string
		status  checkpoint.Status
		low     int32
		high    int32
	}{
		"in between": {"3", checkpoint.Retrying, 64, 80}, "at the last delivery": {"5", checkpoint.Failed, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *brokenStore
			f := setUp(t, nil, func(c *worker.Config) { b = &brokenStore{Store: c.Store}; c.Store = b })
			b.latest.Store(true)
			id, m := newTask("a")
			m.Attributes["ApproximateReceiveCount"] = tt.receive
			wantFailed(t, f.handle(t, m), m)
			rec := f.wantStatus(t, id, tt.status, task.CodeInterrupted)
			f.queue.wantAfter(t, m, tt.low, tt.high)
			last := tt.status == checkpoint.Failed
			if pause := rec.NextRetryAt.Sub(rec.UpdatedAt); last != rec.NextRetryAt.IsZero() || !last && pause < 60*time.Second {
				t.Errorf("the next retry is at %v, %v after the last change, for a task that is %s", rec.NextRetryAt, pause, rec.Status)
			}
			if will := strings.Contains(f.metrics.String(), "WillDeadLetter"); will != last {
				t.Errorf("WillDeadLetter is in the metrics: %v, for a task that is %s", will, rec.Status)
			}
		})
	}
}

// brokenStore fails where it is told to.
type brokenStore struct {
	worker.Store
	claim, latest, commit, end atomic.Bool
}

var errAway = errors.New("DynamoDB is away")

func (b *brokenStore) heal() {
	for _, flag := range []*atomic.Bool{&b.claim, &b.latest, &b.commit, &b.end} {
		flag.Store(false)
	}
}

func (b *brokenStore) Claim(ctx context.Context, r checkpoint.ClaimRequest) (checkpoint.Record, error) {
	if b.claim.Load() {
		return checkpoint.Record{}, errAway
	}
	return b.Store.Claim(ctx, r)
}

func (b *brokenStore) Latest(ctx context.Context, thread string, upTo uint64, limit int) ([]checkpoint.Checkpoint, error) {
	if b.latest.Load() {
		return nil, errAway
	}
	return b.Store.Latest(ctx, thread, upTo, limit)
}

func (b *brokenStore) Commit(ctx context.Context, c checkpoint.Commit) (checkpoint.Committed, error) {
	if b.commit.Load() {
		return checkpoint.Committed{}, errAway
	}
	return b.Store.Commit(ctx, c)
}

func (b *brokenStore) End(ctx context.Context, r checkpoint.Record, e checkpoint.End) error {
	if b.end.Load() {
		return errAway
	}
	return b.Store.End(ctx, r, e)
}

// A worker that dies uses up a delivery and no try: a task that was interrupted often still gets its retries.
func TestInterruptionsAreNoTries(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"fail": func(context.Context, task.Run) (string, error) { return "", errors.New("model is away") }},
		func(c *worker.Config) { c.Retries = 1 })
	id, m := newTask("fail")
	for i := range 3 {
		_, err := f.store.Claim(t.Context(), checkpoint.ClaimRequest{
			ID: id, Task: "test", MessageID: m.MessageId, SentAt: time.Now(), Owner: fmt.Sprint("dead-", i), Until: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantFailed(t, f.handle(t, m), m)
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
	wantFailed(t, f.handle(t, again(m)), m)
	f.wantStatus(t, id, checkpoint.Failed, task.CodeFailed)
}
