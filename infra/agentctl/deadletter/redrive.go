package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/time/rate"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
)

// RedriveOptions say how to redrive.
type RedriveOptions struct {
	Rate   int  // messages a second; zero: as fast as it goes
	DryRun bool // changes nothing
	// Resend sends a copy also where an interrupted redrive may have sent one, and nobody can tell. A second copy of a task
	// that succeeds has no effect; of one that fails again it runs again, and lies in the dead-letter queue twice.
	Resend bool
	// Progress, if set, is told how many messages have been redriven. It is called one at a time.
	Progress func(redriven int)
}

// Redrive puts copies of the selected messages back on their queue and deletes each message when its copy is confirmed. The
// messages of a group of a FIFO queue go in their order.
//
// It may be interrupted, or killed, at any time, and called again with the same selection: each message has been redriven
// once then, or lies in the dead-letter queue. Before a copy is sent the task's record notes it, and after. What the next
// call finds
//
//   - without a note was not copied;
//   - with a confirmed copy, or with a worker's claim under another message since, was copied: it is deleted;
//   - with a note and no more may have been copied. In a FIFO queue the same copy is sent again, within the five minutes
//     in which SQS takes it for the first. Otherwise, when the queue's counts say that it is empty, and have had their
//     time to become right, a copy would have been claimed: there was none, and one is sent. If the queue does not become
//     empty meanwhile the message stays and is reported as uncertain.
//
// The worker's claim alone would not do: of two copies of a task that fails, each is a new message to it, and it runs again.
//
// The error is for what keeps it from going on; the report is true also beside one.
func (q *Queue) Redrive(ctx context.Context, s Selection, o RedriveOptions) (Report, error) {
	return q.redrive(ctx, s, o, false)
}

// Finish brings to an end what interrupted redrives have begun, and touches nothing else.
func (q *Queue) Finish(ctx context.Context, o RedriveOptions) (Report, error) {
	return q.redrive(ctx, Selection{}, o, true)
}

func (q *Queue) redrive(ctx context.Context, s Selection, o RedriveOptions, onlyBegun bool) (Report, error) {
	r := &redrive{
		Queue: q, selection: s, options: o, onlyBegun: onlyBegun, outcome: newOutcome(q, s, o), limit: rate.NewLimiter(rate.Inf, 1),
		began: q.Now().Truncate(time.Millisecond), // as precise as a record's times
	}
	if o.Rate > 0 {
		r.limit.SetLimit(rate.Limit(o.Rate))
	}
	patience := time.Duration(0)
	if !o.DryRun {
		patience = max(q.Hide, q.Settle) + 5*q.Pause
	}
	before, err := dlq.ReadDepth(ctx, q.SQS, q.DeadLetterURL)
	if err == nil {
		r.answered = before.At
		err = q.tour(ctx, patience, before.Total(), r.show)
	}
	return r.report(before, err), err
}

type redrive struct {
	*Queue
	selection Selection
	options   RedriveOptions
	onlyBegun bool
	limit     *rate.Limiter
	began     time.Time
	answered  time.Time // the same by SQS's clock, whole seconds; zero: unknown
	*outcome
}

// show redrives one message, if it is selected and no copy of this very redrive.
func (r *redrive) show(ctx context.Context, pass int, m types.Message) (verdict, error) {
	if r.again(m) {
		return stays, nil
	}
	read := r.Store.DeadLettered
	if r.options.DryRun {
		read = r.Store.AsDeadLettered
	}
	l, rec, err := r.judge(ctx, m, read)
	if ctx.Err() != nil {
		return later, ctx.Err()
	}
	begun, before := rec.RedriveOf(l.MessageID)
	r.saw(l)
	switch {
	case r.onlyBegun && !before:
		return stays, nil
	case !r.selection.takes(l, begun):
		r.other(l)
		return stays, nil
	}
	if err != nil {
		return r.failed(ctx, m, l, err), nil
	}
	if r.sentMeanwhile(l) {
		r.newer(l)
		return stays, nil
	}
	switch copied, undecided := r.copiedMeanwhile(rec, l.MessageID); {
	case copied:
		r.failedAgain(l)
		return stays, nil
	case undecided:
		return r.uncertain(m, l, pass), nil
	}
	switch blocked, undecided := r.blocked(m, pass); {
	case l.Code == dlq.CodeRedriven:
		return r.finish(ctx, m, l)
	case blocked:
		return r.failed(ctx, m, l, errors.New("a message before it in its group could not be redriven")), nil
	case undecided:
		return r.uncertain(m, l, pass), nil
	case (l.Code == dlq.CodeInProgress || l.Code == dlq.CodeMovedOn) && len(r.selection.Reasons) == 0:
		r.left(l)
		return stays, nil
	case before:
		if maybe, err := r.maybeCopied(ctx, l, rec, begun, pass); maybe || err != nil {
			return r.uncertain(m, l, pass), err
		}
	}
	if r.options.DryRun {
		r.redriven(l)
		return stays, nil
	}
	if err := r.limit.Wait(ctx); err != nil {
		return later, err
	}
	return r.copyAndDelete(ctx, pass, m, l, rec)
}

// copiedMeanwhile reports whether the message is a copy that another redrive has sent since this one began: the two would
// otherwise send on each other's copies for as long as the tasks fail. It is undecided while the other has not noted its copy.
func (r *redrive) copiedMeanwhile(rec checkpoint.Record, messageID string) (copied, undecided bool) {
	for _, d := range rec.Redrives {
		if d.At.Before(r.began) || d.MessageID == messageID {
			continue
		}
		copied, undecided = copied || d.To == messageID, undecided || d.To == ""
	}
	return copied, undecided
}

// sentMeanwhile is the same for messages that do not say which task they are: their copies are other tasks, and no record tells of
// both. What was sent since this redrive began, or came into a FIFO queue's dead-letter queue since, is either such a copy or new.
// SQS tells the time in whole seconds.
func (r *redrive) sentMeanwhile(l *dlq.Letter) bool {
	return !l.Named && !r.answered.IsZero() && !l.SentAt.Before(r.answered.Add(time.Second))
}

func (r *redrive) copyAndDelete(ctx context.Context, pass int, m types.Message, l *dlq.Letter, rec checkpoint.Record) (verdict, error) {
	// An interruption from here on would only leave open what has become of the copy.
	ctx = context.WithoutCancel(ctx)
	code := l.Code
	if begun, before := rec.RedriveOf(l.MessageID); before {
		code = begun.Code
	}
	rec, err := r.Store.BeginRedrive(ctx, rec, l.MessageID, code)
	switch {
	case errors.Is(err, checkpoint.ErrChanged):
		return r.uncertain(m, l, pass), nil // somebody is at the same message or task
	case err != nil:
		return r.failed(ctx, m, l, err), nil
	}
	copyID, err := r.send(ctx, m)
	switch {
	case errors.Is(err, errNotSent):
		if undo := r.Store.WithdrawRedrive(ctx, rec, l.MessageID); undo != nil {
			err = errors.Join(err, undo)
		}
		return r.failed(ctx, m, l, err), nil
	case err != nil:
		r.Logger.WarnContext(ctx, "copy of a dead letter not confirmed", "task_id", l.ID, "message_id", l.MessageID, "error", err)
		return r.uncertain(m, l, pass), nil
	}
	r.copied(copyID)
	if err := r.Store.EndRedrive(ctx, rec, l.MessageID, copyID, l.Named); err != nil {
		// The deletion below says the same. The task's status follows at the worker's claim.
		r.Logger.WarnContext(ctx, "redrive not noted", "task_id", l.ID, "message_id", l.MessageID, "error", err)
	}
	if err := r.remove(ctx, m); err != nil {
		r.Logger.WarnContext(ctx, "redriven, and not deleted yet", "task_id", l.ID, "message_id", l.MessageID, "error", err)
		return r.uncertain(m, l, pass), nil
	}
	r.redriven(l)
	return gone, nil
}

// finish deletes a message whose copy is known.
func (r *redrive) finish(ctx context.Context, m types.Message, l *dlq.Letter) (verdict, error) {
	if r.options.DryRun {
		r.finished(l)
		return stays, nil
	}
	if err := r.remove(ctx, m); err != nil {
		return r.failed(ctx, m, l, err), nil
	}
	r.finished(l)
	return gone, nil
}

// dedupSpan is how long SQS surely remembers a deduplication id, with room for clocks that differ.
// Source: Amazon SQS Developer Guide, "Using the message deduplication ID in Amazon SQS".
const dedupSpan = 5*time.Minute - 30*time.Second

// maybeCopied reports whether an earlier try may have sent a copy of which nothing is known. A queue that is empty holds none,
// and a worker that has taken one has claimed the task: then the begin of a new try, which rests on the record as it was read
// before the look at the queue, is refused.
func (r *redrive) maybeCopied(ctx context.Context, l *dlq.Letter, rec checkpoint.Record, begun checkpoint.Redrive, pass int) (bool, error) {
	age := r.Now().Sub(begun.At)
	switch {
	case r.options.Resend, rec.Status == checkpoint.Succeeded, r.fifo() && age < dedupSpan:
		return false, nil
	case !l.Named: // its copy is another task, of which nothing is known
		return true, nil
	case pass == 1: // a copy that no worker ever got lies in the dead-letter queue too, and has to be seen first
		return true, nil
	case age < r.Settle:
		return true, nil
	}
	depth, err := dlq.ReadDepth(ctx, r.SQS, r.URL)
	return err != nil || depth.Total() > 0, err
}
