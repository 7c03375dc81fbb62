package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"agentworker/internal/task"
)

// Create writes the record of a task that is about to be queued. When there is one already it is returned, and
// created is false.
func (s *Store) Create(ctx context.Context, m task.Message, at time.Time) (existing Record, created bool, err error) {
	it, err := attributevalue.MarshalMap(recordItem{
		PK: threadPK(m.Thread), SK: historySK(m.ID), Type: kindHistory,
		TaskID: string(m.ID), Task: m.Task, Status: string(Queued), TraceID: m.TraceID,
		SubmittedAt: stamp(at), UpdatedAt: stamp(at), ExpiresAt: s.expiry(),
	})
	if err != nil {
		return Record{}, false, err
	}
	err = s.put(ctx, it, expression.Name("pk").AttributeNotExists())
	var refusal *refusedError
	if errors.As(err, &refusal) {
		existing, err = record(refusal.item)
		return existing, false, err
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("create task %s: %w", m.ID, err)
	}
	return Record{}, true, nil
}

// SubmitFailed notes that a queued task could not be put on the queue. It does nothing when a worker has
// claimed the task, which shows that it was put there after all.
func (s *Store) SubmitFailed(ctx context.Context, id task.ID, reason string) error {
	return s.resubmit(ctx, id,
		is(Queued).And(expression.Name("attempts").AttributeNotExists()),
		expression.Set(expression.Name("status"), expression.Value(Failed)).
			Set(expression.Name("error"), expression.Value(failureItem{task.CodeSubmitFailed, reason})))
}

// Requeue takes back what [Store.SubmitFailed] or, before the first attempt, [Store.GiveUp] noted, before another try to put
// the task on the queue.
func (s *Store) Requeue(ctx context.Context, id task.ID) error {
	return s.resubmit(ctx, id,
		is(Failed).And(expression.Name("attempts").AttributeNotExists(),
			expression.Name("error.code").In(expression.Value(task.CodeSubmitFailed), expression.Value(task.CodeMessageLost))),
		expression.Set(expression.Name("status"), expression.Value(Queued)).Remove(expression.Name("error")))
}

func (s *Store) resubmit(ctx context.Context, id task.ID, cond expression.ConditionBuilder, upd expression.UpdateBuilder) error {
	upd = upd.Set(expression.Name("updated_at"), expression.Value(stamp(s.now())))
	_, err := s.update(ctx, key(threadPK(id.Thread()), historySK(id)), cond, upd)
	var refusal *refusedError
	if err == nil || errors.As(err, &refusal) {
		return nil
	}
	return fmt.Errorf("update task %s: %w", id, err)
}

// ReserveKey writes an idempotency key for a day. When there is one already, it is returned, and reserved is
// false; the caller compares the bodies.
func (s *Store) ReserveKey(ctx context.Context, k Key) (existing Key, reserved bool, err error) {
	it, err := attributevalue.MarshalMap(keyItem{
		PK: keyPK(k.Hash), SK: idempotencyKey, Type: kindKey, Body: k.Body, TaskID: string(k.TaskID),
		ExpiresAt: s.now().Add(keyRetention).Unix(),
	})
	if err != nil {
		return Key{}, false, err
	}
	err = s.put(ctx, it, expression.Name("pk").AttributeNotExists().
		Or(expression.Name("expires_at").LessThanEqual(expression.Value(s.now().Unix()))))
	var refusal *refusedError
	if !errors.As(err, &refusal) {
		if err != nil {
			return Key{}, false, fmt.Errorf("reserve idempotency key: %w", err)
		}
		return k, true, nil
	}
	var have keyItem
	if err := attributevalue.UnmarshalMap(refusal.item, &have); err != nil {
		return Key{}, false, fmt.Errorf("decode idempotency key: %w", err)
	}
	existing = Key{Hash: k.Hash, Body: have.Body, TaskID: task.ID(have.TaskID), MessageID: have.MessageID}
	// The same task id can only be our own write, whose answer was lost.
	return existing, existing.TaskID == k.TaskID, nil
}

// KeySent notes under an idempotency key that its message is on the queue.
func (s *Store) KeySent(ctx context.Context, hash, messageID string) error {
	_, err := s.update(ctx, key(keyPK(hash), idempotencyKey),
		expression.Name("pk").AttributeExists(),
		expression.Set(expression.Name("message_id"), expression.Value(messageID)))
	var refusal *refusedError
	if err != nil && !errors.As(err, &refusal) {
		return fmt.Errorf("update idempotency key: %w", err)
	}
	return nil
}

func is(s Status) expression.ConditionBuilder {
	return expression.Name("status").Equal(expression.Value(s))
}
