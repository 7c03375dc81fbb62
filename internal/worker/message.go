package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"agentworker/internal/batch"
	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// process is the life of one message at the worker: claim its task, run it, and settle how it ended. A nil error means
// that SQS may delete the message.
func (w *Worker) process(ctx context.Context, r batch.Record[*delivery]) error {
	d := r.Value
	ctx = d.traced(ctx)
	claimed, err := w.claim(ctx, d)
	if err != nil {
		return w.unclaimed(ctx, d, claimed.record, err)
	}
	run := newRun(w, claimed, d)
	return w.settle(ctx, d, run, w.attempt(ctx, d, run))
}

// claimed is a task that this worker owns, and the thread's newest checkpoints.
type claimed struct {
	record checkpoint.Record
	latest []checkpoint.Checkpoint // newest first
}

// contextCheckpoints is how many of the thread's newest checkpoints are read for a task: one request, whatever the thread's
// length.
const contextCheckpoints = 20

// claim takes the task and reads its thread, side by side. What was read is used only if the claim succeeds, and
// may be a little older than the claim: the thread's other tasks are not waited for.
func (w *Worker) claim(ctx context.Context, d *delivery) (claimed, error) {
	var c claimed
	var claimErr, readErr error
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var both sync.WaitGroup
	both.Go(func() {
		c.record, claimErr = w.Store.Claim(ctx, checkpoint.ClaimRequest{
			ID: d.message.ID, Task: d.writtenType(), MessageID: d.MessageID, TraceID: telemetry.TraceID(ctx), SentAt: d.sentAt,
			Owner: requestID(ctx) + "/" + ulid.Make().String(), Until: d.deadline,
		})
		if claimErr != nil {
			stopReading()
		}
	})
	both.Go(func() {
		c.latest, readErr = w.Store.Latest(reading, d.message.Thread, 0, contextCheckpoints)
	})
	both.Wait()
	if claimErr != nil {
		return c, claimErr
	}
	return c, readErr
}

// unclaimed decides about a message whose task this worker does not get to run.
func (w *Worker) unclaimed(ctx context.Context, d *delivery, rec checkpoint.Record, err error) error {
	ctx, cancel := d.settling(ctx)
	defer cancel()
	var held *checkpoint.LeaseHeldError
	switch {
	case errors.Is(err, checkpoint.ErrSucceeded):
		w.Metrics.Count(telemetry.Duplicates, d.taskType())
		w.Logger.InfoContext(ctx, "delivered again after success: acknowledged", d.attrs()...)
		return nil
	case errors.Is(err, checkpoint.ErrFailed):
		w.Logger.InfoContext(ctx, "failed for good: left to the dead-letter queue", d.attrs()...)
		return w.handBack(ctx, d, 0, err)
	case errors.As(err, &held):
		w.Metrics.Count(telemetry.Duplicates, d.taskType())
		w.Logger.InfoContext(ctx, "another worker is at it: handed back", append(d.attrs(), "until", held.Until)...)
		return w.handBack(ctx, d, time.Until(held.Until)+time.Second, err)
	}
	// The table did not answer, or only to one of the two requests. If the claim took effect, its attempt is given up
	// here, so that the next delivery need not wait for the lease.
	after := afterNoAnswer(d.receives)
	end := checkpoint.End{Status: checkpoint.Retrying, Failure: task.Failure{Code: task.CodeInterrupted, Message: "the thread could not be read"}}
	if d.receives >= w.MaxReceiveCount {
		end.Status, after = checkpoint.Failed, 0
	} else {
		end.NextRetryAt = time.Now().Add(after)
	}
	w.Logger.ErrorContext(ctx, "task not claimed", append(d.attrs(), "error", err)...)
	if rec.Lease.Fence > 0 {
		if endErr := w.Store.End(ctx, rec, end); endErr != nil {
			w.Logger.WarnContext(ctx, "attempt not closed", append(d.attrs(), "error", endErr)...)
		}
		w.ended(ctx, d, rec, end, err)
	}
	return w.handBack(ctx, d, after, err)
}

// attempt runs the handler until it returns or the time is up. A handler that does not return then is left behind: it
// cannot begin another step, nor commit any more once the attempt is closed.
func (w *Worker) attempt(ctx context.Context, d *delivery, r *run) error {
	if d.malErr != nil {
		return d.malErr
	}
	typ, _ := w.Tasks.Lookup(d.message.Task) // Decode has found it
	returned := make(chan error, 1)
	go func() {
		returned <- task.Guard(func() error {
			out, err := typ.Run(ctx, r, d.message)
			return r.finish(ctx, out, err)
		})
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	// A commit that is under way may still get through: its step has been paid for.
	select {
	case err := <-returned:
		return err
	case <-time.After(time.Until(d.commitBy())):
		err := task.WithCode(task.CodeDeadline, errDeadline)
		_ = r.fail(err)
		return err
	}
}

var errDeadline = errors.New("the attempt did not finish before the function's deadline")

// settle records how an attempt ended and says when the message shall come back, if it shall.
func (w *Worker) settle(ctx context.Context, d *delivery, r *run, err error) error {
	timeUp := ctx.Err() != nil
	ctx, cancel := d.settling(ctx)
	defer cancel()
	if err == nil {
		w.succeeded(ctx, d, r)
		return nil
	}
	if errors.Is(err, checkpoint.ErrFenceLost) {
		return w.lost(ctx, d, err)
	}
	rec, step := r.state()
	last := d.receives >= w.MaxReceiveCount
	switch {
	case task.IsContinue(err) && !last:
		return w.goOn(ctx, d, r)
	case task.IsContinue(err), timeUp && last && !task.IsPermanent(err) && (r.progressed() || rec.GoesOn()):
		err = task.Failf(task.CodeRunTooLong, "the run did not end within the %d deliveries that its message gets; its %d finished steps are kept", w.MaxReceiveCount, len(rec.Steps))
	case timeUp && !task.IsPermanent(err):
		err = task.WithCode(task.CodeDeadline, errDeadline)
		w.Metrics.Count(telemetry.DeadlineHandedBack, d.taskType())
	}
	end := checkpoint.End{Status: checkpoint.Retrying, Failure: task.FailureOf(err), Step: step}
	after, given := task.Delay(err)
	if !given {
		after = backoff(rec.Tries())
	}
	if task.IsPermanent(err) || rec.Tries() > w.Retries || last {
		end.Status, after = checkpoint.Failed, 0
	} else {
		end.NextRetryAt = time.Now().Add(after)
	}
	switch endErr := w.Store.End(ctx, rec, end); {
	case errors.Is(endErr, checkpoint.ErrSucceeded):
		w.succeeded(ctx, d, r)
		return nil
	case errors.Is(endErr, checkpoint.ErrFenceLost):
		return w.lost(ctx, d, endErr)
	case endErr != nil:
		// The next delivery finds the lease, and the alarm a message without a reason: both recover from that.
		w.Logger.ErrorContext(ctx, "attempt not closed", append(d.attrs(), "error", endErr)...)
	}
	w.ended(ctx, d, rec, end, err)
	return w.handBack(ctx, d, after, err)
}

// untilContinued is the pause before a run goes on: long enough for this invocation to have ended.
const untilContinued = time.Second

// goOn hands the message back between two steps. There is no new message: a function that sends to its own queue is cut off
// as a loop. Source: AWS Lambda Developer Guide, "Use Lambda recursive loop detection to prevent infinite loops".
func (w *Worker) goOn(ctx context.Context, d *delivery, r *run) error {
	rec, step := r.state()
	continued := task.Continue()
	switch err := w.Store.End(ctx, rec, checkpoint.End{Status: checkpoint.Queued, Failure: task.FailureOf(continued), Step: step}); {
	case errors.Is(err, checkpoint.ErrSucceeded):
		w.succeeded(ctx, d, r)
		return nil
	case errors.Is(err, checkpoint.ErrFenceLost):
		return w.lost(ctx, d, err)
	case err != nil:
		w.Logger.ErrorContext(ctx, "attempt not closed", append(d.attrs(), "error", err)...)
	}
	w.Metrics.Count(telemetry.Continued, d.taskType())
	w.Logger.InfoContext(ctx, "run goes on at the next delivery", append(d.attrs(), "attempt", rec.Lease.Fence, "step", step, "steps", len(rec.Steps))...)
	return w.handBack(ctx, d, untilContinued, continued)
}

func (w *Worker) succeeded(ctx context.Context, d *delivery, r *run) {
	w.Metrics.Count(telemetry.TasksSucceeded, d.taskType())
	w.Metrics.Time(telemetry.EndToEnd, d.taskType(), time.Since(d.sentAt))
	rec, _ := r.state()
	w.Logger.InfoContext(ctx, "task succeeded", append(d.attrs(), "attempt", rec.Lease.Fence, "steps", len(rec.Steps), "checkpoint", rec.ResultN)...)
}

// lost leaves the message to whoever owns its task now.
func (w *Worker) lost(ctx context.Context, d *delivery, err error) error {
	w.Metrics.Count(telemetry.Duplicates, d.taskType())
	w.Logger.WarnContext(ctx, "another worker has taken over: stopped without effect", d.attrs()...)
	return err
}

// ended logs and counts an attempt without success. What the error says may hold content: it goes into the record, and
// only its code into the log.
func (w *Worker) ended(ctx context.Context, d *delivery, rec checkpoint.Record, end checkpoint.End, err error) {
	attrs := append(d.attrs(), "attempt", rec.Lease.Fence, "step", end.Step, "code", end.Failure.Code)
	var panicked *task.PanicError
	if errors.As(err, &panicked) {
		attrs = append(attrs, "stack", string(panicked.Stack))
	}
	if end.Status == checkpoint.Failed {
		w.Metrics.Count(telemetry.TasksFailed, d.taskType())
		w.Metrics.Count(telemetry.WillDeadLetter, d.taskType())
		w.Logger.ErrorContext(ctx, "task failed: it goes to the dead-letter queue", attrs...)
		return
	}
	w.Metrics.Count(telemetry.TasksRetried, d.taskType())
	w.Logger.WarnContext(ctx, "attempt failed: it will be tried again", append(attrs, "next_retry_at", end.NextRetryAt)...)
}

// retryError is a record that has been dealt with and comes back after a time.
type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

func (w *Worker) handBack(ctx context.Context, d *delivery, after time.Duration, err error) error {
	w.changeVisibility(ctx, d, after)
	return &retryError{after: after, err: err}
}

// backoff is the pause after a failed attempt: 2^try seconds.
func backoff(try int) time.Duration { return exponential(try, 15*time.Minute) }

// afterNoAnswer is the pause after a delivery that the table did not answer: 4^receives seconds. Nothing but the deliveries
// counts then, and a table that is away for some minutes must not use them up; nor need a message wait long for one that is
// there again.
func afterNoAnswer(receives int) time.Duration { return exponential(2*receives, 2*time.Minute) }

// exponential is 2^n seconds or the longest, and up to a quarter more at random, so that tasks that failed together do not
// come back together.
func exponential(n int, longest time.Duration) time.Duration {
	d := longest
	if n < 10 {
		d = min(d, time.Second<<max(n, 0))
	}
	return d + rand.N(d/4)
}
