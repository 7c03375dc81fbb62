// Package batch works through the records of one queue batch: side by side, in order within a group, each on
// its own as far as failure, panic and deadline go. It knows nothing of queues or AWS.
package batch

import (
	"context"
	"errors"
	"time"

	"agentworker/internal/task"
)

// Record is one record of a batch.
type Record[T any] struct {
	ID    string
	Group string // records of one group run one after another; "": on its own
	Value T
}

// Failure is a record that is not done and must come back.
type Failure struct {
	ID  string
	Err error
}

// Why a record failed without its function having said so.
var (
	// ErrDeadline: it had not finished, or not begun, when the time was up.
	ErrDeadline = errors.New("not finished before the deadline")
	// ErrBehind: an earlier record of its group failed; it was not begun.
	ErrBehind = errors.New("an earlier record of the group failed")
)

// Options of [Process].
type Options struct {
	// Concurrency is how many records run at once, at least 1.
	Concurrency int
	// Margin is taken off the context's deadline, so that there is time left to answer: the functions' context ends
	// that much earlier, and Process returns at most half the margin later.
	Margin time.Duration
}

// Process calls fn for each record and returns those that failed, in the batch's order. It never calls fn twice for a
// record, never begins a record when an earlier one of its group has failed, and returns before
// the deadline even if some fn does not: those records count as failed, and what their fn still
// returns is ignored. A panic in fn is an error of that record alone.
//
// The context that fn gets ends at the deadline less [Options.Margin].
func Process[T any](ctx context.Context, records []Record[T], opts Options, fn func(context.Context, Record[T]) error) []Failure {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-opts.Margin))
		defer cancel()
	}
	w := newWork(records)
	all := make(chan struct{})
	w.workers = min(max(opts.Concurrency, 1), len(w.turn))
	if w.workers == 0 {
		return []Failure{}
	}
	for range w.workers {
		go func() {
			defer w.leave(all)
			for at, ok := w.begin(ctx); ok; at, ok = w.begin(ctx) {
				err := run(ctx, records[at], fn)
				w.finish(at, err, func(i int) string { return records[i].ID })
			}
		}()
	}
	select {
	case <-all:
	case <-ctx.Done():
		// What ends together with the context gets the chance to say so.
		select {
		case <-all:
		case <-time.After(grace(opts.Margin)):
		}
	}
	return failures(records, w.take())
}

// grace is the part of the margin that functions may use to return after their context has ended.
func grace(margin time.Duration) time.Duration { return margin / 2 }

func run[T any](ctx context.Context, r Record[T], fn func(context.Context, Record[T]) error) error {
	return task.Guard(func() error { return fn(ctx, r) })
}

func failures[T any](records []Record[T], states []state) []Failure {
	failed := []Failure{}
	for i, s := range states {
		switch {
		case !s.done:
			failed = append(failed, Failure{records[i].ID, ErrDeadline})
		case s.err != nil:
			failed = append(failed, Failure{records[i].ID, s.err})
		}
	}
	return failed
}
