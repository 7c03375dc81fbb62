package deadletter_test

import (
	"context"
	"errors"
	"sync/atomic"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// mortalStore is closed to a dead process.
type mortalStore struct {
	*checkpoint.Store
	dead atomic.Bool
}

func (s *mortalStore) DeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error) {
	if s.dead.Load() {
		return checkpoint.Record{}, errDied
	}
	return s.Store.DeadLettered(ctx, d)
}

func (s *mortalStore) BeginRedrive(ctx context.Context, rec checkpoint.Record, messageID, code string) (checkpoint.Record, error) {
	if s.dead.Load() {
		return checkpoint.Record{}, errDied
	}
	return s.Store.BeginRedrive(ctx, rec, messageID, code)
}

func (s *mortalStore) EndRedrive(ctx context.Context, rec checkpoint.Record, messageID, copyID string, sameTask bool) error {
	if s.dead.Load() {
		return errDied
	}
	return s.Store.EndRedrive(ctx, rec, messageID, copyID, sameTask)
}

func (s *mortalStore) WithdrawRedrive(ctx context.Context, rec checkpoint.Record, messageID string) error {
	if s.dead.Load() {
		return errDied
	}
	return s.Store.WithdrawRedrive(ctx, rec, messageID)
}

// forgetfulStore cannot note the end of a redrive.
type forgetfulStore struct{ *checkpoint.Store }

func (forgetfulStore) EndRedrive(context.Context, checkpoint.Record, string, string, bool) error {
	return errors.New("the table does not answer")
}

// lateStore notes the end of a redrive only when it is told to.
type lateStore struct {
	*checkpoint.Store
	note func(context.Context) error
}

func (s *lateStore) EndRedrive(_ context.Context, rec checkpoint.Record, messageID, copyID string, sameTask bool) error {
	s.note = func(ctx context.Context) error { return s.Store.EndRedrive(ctx, rec, messageID, copyID, sameTask) }
	return nil
}

// interruptedStore is a store at whose first read somebody interrupts the program.
type interruptedStore struct {
	*checkpoint.Store
	interrupt func()
}

func (s interruptedStore) AsDeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error) {
	s.interrupt()
	return s.Store.AsDeadLettered(ctx, d)
}

// brokenStore is a store that cannot read one record.
type brokenStore struct {
	*checkpoint.Store
	id task.ID
}

func (s brokenStore) DeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error) {
	if d.ID == s.id {
		return checkpoint.Record{}, errors.New("the table does not answer")
	}
	return s.Store.DeadLettered(ctx, d)
}

// atomicCounter counts from 1.
type atomicCounter struct{ n atomic.Int64 }

func (c *atomicCounter) next() int64  { return c.n.Add(1) }
func (c *atomicCounter) value() int64 { return c.n.Load() }
