package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/cenkalti/backoff/v5"

	"agentworker/internal/task"
)

// DeadLetter is a message that lies in a dead-letter queue.
type DeadLetter struct {
	ID        task.ID
	Task      string
	MessageID string
	SentAt    time.Time
	Reason    task.Failure // used when the record does not say why
}

// DeadLettered makes the record of a dead-lettered task say that it has failed, and returns the record as it then
// is. It leaves alone a task that has succeeded, that a worker is at, that has already failed under
// this message, or that has since come back under a newer one. When there is no record it makes one.
// Calling it again changes nothing.
func (s *Store) DeadLettered(ctx context.Context, d DeadLetter) (Record, error) {
	return backoff.Retry(ctx, func() (Record, error) {
		rec, err := s.Record(ctx, d.ID)
		switch {
		case errors.Is(err, ErrNotFound):
			return s.buryUnknown(ctx, d)
		case err != nil:
			return Record{}, backoff.Permanent(err)
		case rec.stays(d, s.now()):
			return rec, nil
		}
		return s.bury(ctx, d, rec)
	}, jittered()...)
}

// AsDeadLettered gives the record as [Store.DeadLettered] would leave it, and changes nothing.
func (s *Store) AsDeadLettered(ctx context.Context, d DeadLetter) (Record, error) {
	rec, err := s.Record(ctx, d.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return Record{
			TaskID: d.ID, Task: d.Task, Status: Failed, Error: &d.Reason, MessageID: d.MessageID, SubmittedAt: d.SentAt,
		}, nil
	case err != nil:
		return Record{}, err
	case rec.stays(d, s.now()):
		return rec, nil
	}
	reason := rec.whyDead(d)
	rec.Status, rec.Error, rec.MessageID, rec.NextRetryAt = Failed, &reason, d.MessageID, time.Time{}
	return rec, nil
}

// stays reports whether the dead letter tells nothing that the record does not say.
func (r Record) stays(d DeadLetter, now time.Time) bool {
	return r.Status == Succeeded || r.Live(now) || r.Status == Failed && r.knows(d.MessageID) ||
		r.MessageID != d.MessageID && r.knows(d.MessageID)
}

// bury marks a task as failed, unless it has changed since it was read: then the error says to look again.
func (s *Store) bury(ctx context.Context, d DeadLetter, rec Record) (Record, error) {
	reason := rec.whyDead(d)
	upd := expression.Set(expression.Name("status"), expression.Value(Failed)).
		Set(expression.Name("error"), expression.Value(failureItem(reason))).
		Set(expression.Name("message_id"), expression.Value(d.MessageID)).
		Set(expression.Name("updated_at"), expression.Value(stamp(s.now()))).
		Remove(expression.Name("lease_owner")).Remove(expression.Name("lease_until")).Remove(expression.Name("next_retry_at"))
	it, err := s.update(ctx, recordKey(rec), is(rec.Status).And(fenceIs(rec.Lease.Fence)), upd)
	return buried(d, it, err)
}

// whyDead is the best reason at hand: how the last attempt under this message ended, if there was one.
func (r Record) whyDead(d DeadLetter) task.Failure {
	n := len(r.Attempts)
	switch {
	case n == 0 || r.Attempts[n-1].MessageID != d.MessageID:
		return d.Reason
	case r.Attempts[n-1].EndedAt.IsZero():
		return task.Failure{Code: task.CodeInterrupted, Message: fmt.Sprintf("the worker died or was stopped in attempt %d", n)}
	case r.Attempts[n-1].Continued():
		return task.Failure{Code: task.CodeRunTooLong, Message: fmt.Sprintf("the run was to go on after attempt %d, but its message was not delivered to a worker any more", n)}
	case r.Error != nil:
		return *r.Error
	}
	return d.Reason
}

func (s *Store) buryUnknown(ctx context.Context, d DeadLetter) (Record, error) {
	it, err := attributevalue.MarshalMap(recordItem{
		PK: threadPK(d.ID.Thread()), SK: historySK(d.ID), Type: kindHistory,
		TaskID: string(d.ID), Task: d.Task, Status: string(Failed), Error: (*failureItem)(&d.Reason), MessageID: d.MessageID,
		SubmittedAt: stamp(d.SentAt), UpdatedAt: stamp(s.now()), ExpiresAt: s.expiry(),
	})
	if err != nil {
		return Record{}, backoff.Permanent(err)
	}
	err = s.put(ctx, it, expression.Name("pk").AttributeNotExists().
		Or(expression.Name("expires_at").LessThanEqual(expression.Value(s.now().Unix()))))
	return buried(d, it, err)
}

func buried(d DeadLetter, it item, err error) (Record, error) {
	if err == nil {
		return record(it)
	}
	err = fmt.Errorf("mark task %s as dead-lettered: %w", d.ID, err)
	var refusal *refusedError
	if !errors.As(err, &refusal) {
		err = backoff.Permanent(err)
	}
	return Record{}, err
}
