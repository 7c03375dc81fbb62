package batch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"agentworker/internal/batch"
)

// Two of three finish, the last one sleeps past the function's deadline: it alone comes back, in time.
//
// Case: timeout mid-batch
func TestRecordThatOutlivesTheDeadlineIsHandedBackInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), start.Add(60*time.Second))
		defer cancel()
		failed := batch.Process(ctx, []record{
			{"a", "", taking(time.Second)}, {"b", "", taking(57 * time.Second)}, {"c", "", taking(time.Hour)},
		}, batch.Options{Concurrency: 10, Margin: 2 * time.Second}, call)
		check(t, failed, "c: not finished before the deadline")
		if !errors.Is(failed[0].Err, batch.ErrDeadline) {
			t.Errorf("got %v, want %v", failed[0].Err, batch.ErrDeadline)
		}
		elapsed(t, start, 59*time.Second)
		if ctx.Err() != nil {
			t.Errorf("the function's own context: got %v, want it alive", ctx.Err())
		}
		pass(time.Hour) // until the one left behind is through
	})
}

func TestContextEndsAMarginBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		failed := batch.Process(ctx, []record{{"a", "", func(ctx context.Context) error {
			if got, ok := ctx.Deadline(); !ok || !got.Equal(start.Add(8*time.Second)) {
				t.Errorf("deadline: got %v, %t, want %v", got, ok, start.Add(8*time.Second))
			}
			<-ctx.Done()
			elapsed(t, start, 8*time.Second)
			return ctx.Err()
		}}}, batch.Options{Margin: 2 * time.Second}, call)
		check(t, failed, "a: context deadline exceeded")
		elapsed(t, start, 8*time.Second)
	})
}

// What returns within half the margin after its context has ended is believed, later it is not.
func TestGraceAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		after    time.Duration
		err      error
		want     []string
		wantTook time.Duration
	}{
		"success at once":   {0, nil, nil, 8 * time.Second},
		"success in time":   {900 * time.Millisecond, nil, nil, 8900 * time.Millisecond},
		"error in time":     {900 * time.Millisecond, errBroken, []string{"a: broken"}, 8900 * time.Millisecond},
		"success too late":  {1100 * time.Millisecond, nil, []string{"a: not finished before the deadline"}, 9 * time.Second},
		"error too late":    {1100 * time.Millisecond, errBroken, []string{"a: not finished before the deadline"}, 9 * time.Second},
		"much later indeed": {time.Hour, nil, []string{"a: not finished before the deadline"}, 9 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				failed := batch.Process(ctx, []record{{"a", "", func(ctx context.Context) error {
					<-ctx.Done()
					pass(tt.after)
					return tt.err
				}}}, batch.Options{Margin: 2 * time.Second}, call)
				elapsed(t, start, tt.wantTook)
				check(t, failed, tt.want...)
				before := sentences(failed)
				pass(2 * time.Hour) // what comes now is ignored
				check(t, failed, before...)
			})
		})
	}
}

func TestWhatHasNotBegunIsHandedBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var j journal
		records := []record{
			{"a1", "g", nil}, {"a2", "g", nil}, {"a3", "g", nil}, // one after another, 5 s each
			{"b", "", nil}, {"c", "", nil}, {"d", "", nil}, // more than run at once
		}
		failed := batch.Process(ctx, records, batch.Options{Concurrency: 2, Margin: time.Second}, j.noting(taking(5*time.Second)))
		elapsed(t, start, 9500*time.Millisecond)
		pass(time.Hour)
		if got := len(j.begun()); got != 4 {
			t.Errorf("begun: got %q, want the 4 for which there was time, also afterwards", j.begun())
		}
		// Two begin at once and end after 5 s, two more do not end in time, two never begin.
		if len(failed) != 4 {
			t.Errorf("failures: got %q, want 4", sentences(failed))
		}
		for _, f := range failed {
			if !errors.Is(f.Err, batch.ErrDeadline) {
				t.Errorf("%s: got %v, want %v", f.ID, f.Err, batch.ErrDeadline)
			}
		}
	})
}

func TestNothingBeginsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		var j journal
		failed := batch.Process(ctx, []record{{"a", "g", nil}, {"b", "", nil}}, batch.Options{Concurrency: 2}, j.noting(fine))
		check(t, failed, "a: not finished before the deadline", "b: not finished before the deadline")
		if len(j.begun()) != 0 {
			t.Errorf("begun: got %q, want none", j.begun())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// The group's first record ends together with the context: the second one must not begin then.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var j journal
		failed := batch.Process(ctx, []record{{"a", "g", nil}, {"b", "g", nil}}, batch.Options{Margin: 100 * time.Millisecond},
			j.noting(func(ctx context.Context) error { <-ctx.Done(); return nil }))
		check(t, failed, "b: not finished before the deadline")
		if !slices.Equal(j.begun(), []string{"a"}) {
			t.Errorf("begun: got %q, want a", j.begun())
		}
	})
}

func TestWithoutADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		check(t, batch.Process(t.Context(), []record{{"a", "", taking(time.Hour)}, {"b", "", func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); ok {
				t.Error("the function has a deadline, want none")
			}
			return nil
		}}}, batch.Options{Concurrency: 2, Margin: time.Minute}, call))
		elapsed(t, start, time.Hour)
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		time.AfterFunc(time.Second, cancel)
		failed := batch.Process(ctx, []record{{"a", "", taking(time.Hour)}, {"b", "", fine}}, batch.Options{Concurrency: 2, Margin: time.Minute}, call)
		check(t, failed, "a: not finished before the deadline")
		elapsed(t, start, 31*time.Second)
		pass(time.Hour)
	})
}
