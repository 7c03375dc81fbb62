package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"agentworker/internal/task"
)

// ClaimRequest is a worker's wish to run a task.
type ClaimRequest struct {
	ID        task.ID
	Task      string // the type; empty when the message could not be read
	MessageID string
	TraceID   string    // the message's; "": unknown
	SentAt    time.Time // when the message was sent; the submission time of a task without a record
	Owner     string    // unique to this claim
	Until     time.Time // the invocation's deadline: no invocation outlives it
}

// Claim makes the worker the owner of a task, and adds an attempt to its record, which it returns. The record
// is made when there is none, as for a message that another program put on the queue.
//
// Its errors are [ErrSucceeded] and [ErrFailed] when there is nothing left to run, each with the record,
// and [LeaseHeldError]. A failed task is claimed again only under a message id that it never had:
// somebody moved it out of the dead-letter queue.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) (Record, error) {
	now := s.now()
	rec, err := s.claim(ctx, r, now,
		notThere+" OR #status IN (:queued, :retrying) OR (#status = :running AND lease_until <= :now)",
		item{":queued": text(Queued), ":retrying": text(Retrying)})
	var refusal *refusedError
	if !errors.As(err, &refusal) {
		return rec, err
	}
	if rec, err = record(refusal.item); err != nil {
		return Record{}, err
	}
	switch {
	case rec.Lease.Owner == r.Owner:
		return rec, nil // our own claim, whose answer was lost
	case rec.Status == Succeeded:
		return rec, ErrSucceeded
	case rec.Status == Failed && rec.knows(r.MessageID):
		return rec, ErrFailed
	case rec.Status == Failed:
		return s.claimAgain(ctx, r, rec)
	}
	return rec, &LeaseHeldError{Until: rec.Lease.Until}
}

// claimAgain claims a failed task whose message is new. Whoever redrives may make it queued just then.
func (s *Store) claimAgain(ctx context.Context, r ClaimRequest, failed Record) (Record, error) {
	rec, err := s.claim(ctx, r, s.now(), "#status IN (:failed, :queued) AND fence = :fence",
		item{":failed": text(Failed), ":queued": text(Queued), ":fence": signed(failed.Lease.Fence)})
	var refusal *refusedError
	if !errors.As(err, &refusal) {
		return rec, err
	}
	if rec, err = record(refusal.item); err != nil {
		return Record{}, err
	}
	if rec.Lease.Owner == r.Owner {
		return rec, nil
	}
	// Somebody was faster. What they make of it shows at the next delivery, after their lease.
	return rec, &LeaseHeldError{Until: rec.Lease.Until}
}

// claim makes the claim under a condition, whose values it gets.
func (s *Store) claim(ctx context.Context, r ClaimRequest, now time.Time, condition string, values item) (Record, error) {
	w := written{
		condition: condition, values: values, names: map[string]string{"#status": "status", "#type": "type"},
		update: "SET #status = :running, #type = :history, task_id = :id, attempts = list_append(if_not_exists(attempts, :none), :attempt)" +
			", lease_owner = :owner, lease_until = :until, message_id = :message, updated_at = :now, expires_at = :expires" +
			", submitted_at = if_not_exists(submitted_at, :sent)",
	}
	values[":running"], values[":history"], values[":id"] = text(Running), text(kindHistory), text(r.ID)
	values[":none"] = list()
	values[":attempt"] = list(object(item{"started_at": text(stamp(now)), "message_id": text(r.MessageID)}))
	values[":owner"], values[":until"], values[":message"] = text(r.Owner), text(stamp(r.Until)), text(r.MessageID)
	values[":now"], values[":expires"], values[":sent"] = text(stamp(now)), signed(s.expiry()), text(stamp(r.SentAt))
	values[":one"] = signed(1)
	if r.TraceID != "" {
		w.update += ", trace_id = if_not_exists(trace_id, :trace)"
		values[":trace"] = text(r.TraceID)
	}
	if r.Task != "" {
		w.update += ", task = :task"
		values[":task"] = text(r.Task)
	}
	w.update += " ADD fence :one REMOVE next_retry_at"
	it, err := s.updateWith(ctx, key(threadPK(r.ID.Thread()), historySK(r.ID)), w)
	if err != nil {
		return Record{}, fmt.Errorf("claim task %s: %w", r.ID, err)
	}
	return record(it)
}

// knows reports whether the task has come under this message before.
func (r Record) knows(messageID string) bool {
	if r.MessageID == messageID {
		return true
	}
	for _, a := range r.Attempts {
		if a.MessageID == messageID {
			return true
		}
	}
	_, redriven := r.RedriveOf(messageID)
	return redriven
}

// Tries counts the attempts that were made under the record's current message: a redrive out of the
// dead-letter queue begins anew. Attempts after which the run just goes on are no tries, and neither are those that were
// cut off, the newest apart, which may still be running: how often a worker may die is bounded by SQS's receive count.
func (r Record) Tries() int {
	n := 0
	for i, a := range r.Attempts {
		if a.MessageID == r.MessageID && !a.Continued() && (i == len(r.Attempts)-1 || !a.Interrupted()) {
			n++
		}
	}
	return n
}

// Interrupted reports whether the attempt, which is not running any more, was cut off: its worker died, was stopped, or could
// not read the thread.
func (a Attempt) Interrupted() bool {
	if a.Error != nil {
		return a.Error.Code == task.CodeInterrupted
	}
	return a.EndedAt.IsZero()
}

// Continued reports whether the attempt ended between two steps, for the next one to go on there.
func (a Attempt) Continued() bool { return a.Error != nil && a.Error.Code == task.CodeContinued }

// GoesOn reports whether an earlier attempt under the record's current message has left the rest of its run to later
// ones.
func (r Record) GoesOn() bool {
	return slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.MessageID == r.MessageID && a.Continued() })
}

// Live reports whether some worker may still be at the task.
func (r Record) Live(now time.Time) bool {
	return r.Status == Running && r.Lease.Until.After(now)
}

func fenceIs(fence int64) expression.ConditionBuilder {
	return expression.Name("fence").Equal(expression.Value(fence))
}

// End is how an attempt ended that did not succeed.
type End struct {
	Status      Status       // Retrying, Failed, or Queued when the run just goes on at the next delivery
	Failure     task.Failure // of the attempt, and of the task unless that is queued
	Step        string       // at which it ended, "" before the first
	NextRetryAt time.Time    // zero unless retrying
}

// End closes the attempt that rec stands for, if it is still the task's owner; otherwise the error is [ErrFenceLost],
// or [ErrSucceeded] when the attempt had in fact committed its last step.
func (s *Store) End(ctx context.Context, rec Record, end End) error {
	attempt := attemptName(rec)
	upd := expression.
		Set(expression.Name("status"), expression.Value(end.Status)).
		Set(expression.Name("updated_at"), expression.Value(stamp(s.now()))).
		Set(expression.Name(attempt+".ended_at"), expression.Value(stamp(s.now()))).
		Set(expression.Name(attempt+".error"), expression.Value(failureItem(end.Failure))).
		Remove(expression.Name("lease_owner")).Remove(expression.Name("lease_until"))
	if end.Status == Queued {
		upd = upd.Remove(expression.Name("error"))
	} else {
		upd = upd.Set(expression.Name("error"), expression.Value(failureItem(end.Failure)))
	}
	if end.Step != "" {
		upd = upd.Set(expression.Name("step"), expression.Value(end.Step)).
			Set(expression.Name(attempt+".step"), expression.Value(end.Step))
	}
	if !end.NextRetryAt.IsZero() {
		upd = upd.Set(expression.Name("next_retry_at"), expression.Value(stamp(end.NextRetryAt)))
	}
	_, err := s.update(ctx, recordKey(rec), is(Running).And(fenceIs(rec.Lease.Fence)), upd)
	var refusal *refusedError
	if err == nil || !errors.As(err, &refusal) {
		return wrapEnd(err, rec)
	}
	now, err := record(refusal.item)
	switch {
	case err != nil:
		return wrapEnd(err, rec)
	case now.Status == Succeeded:
		return ErrSucceeded
	case now.Lease.Fence == rec.Lease.Fence:
		return nil // our own write, whose answer was lost
	}
	return ErrFenceLost
}

func wrapEnd(err error, rec Record) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("end attempt %d of task %s: %w", rec.Lease.Fence, rec.TaskID, err)
}

func recordKey(rec Record) item { return key(threadPK(rec.TaskID.Thread()), historySK(rec.TaskID)) }

// attemptName is the path of the record's own attempt: every claim adds one to both fence and attempts.
func attemptName(rec Record) string { return fmt.Sprintf("attempts[%d]", rec.Lease.Fence-1) }
