package batch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"agentworker/internal/batch"
)

// TestFewSlotsKeepEveryPromise runs random batches with fewer slots than records. Who gets a slot first is left open, so
// that there is no exact outcome to compare with; what must hold for every one of them is checked instead.
//
// Case: mixed groups
// Case: FIFO order
// Case: timeout mid-batch
func TestFewSlotsKeepEveryPromise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(behaviours(), 4, 16).Draw(rt, "records")
		slots := rapid.IntRange(1, 4).Draw(rt, "slots")
		margin := time.Duration(rapid.IntRange(0, 3).Draw(rt, "margin")) * 50 * time.Millisecond
		ends := rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, never}).Draw(rt, "context ends")
		var problems []string
		synctest.Test(t, func(t *testing.T) { problems = crowd(t, list, slots, ends, margin) })
		for _, problem := range problems {
			rt.Error(problem)
		}
	})
}

func crowd(t *testing.T, list []behaviour, slots int, ends, margin time.Duration) (problems []string) {
	t.Helper()
	var mu sync.Mutex
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	ctx, start := t.Context(), time.Now()
	if ends < never {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ends+margin)
		defer cancel()
	}
	records := make([]batch.Record[int], len(list))
	for i, b := range list {
		records[i] = batch.Record[int]{ID: fmt.Sprint(i), Group: b.Group, Value: i}
	}
	calls, succeeded, running := make([]int, len(list)), make([]bool, len(list)), 0
	failures := batch.Process(ctx, records, batch.Options{Concurrency: slots, Margin: margin}, func(ctx context.Context, r batch.Record[int]) error {
		mu.Lock()
		calls[r.Value]++
		running++
		if running > slots {
			problem("%d records run at once, want at most %d", running, slots)
		}
		if ctx.Err() != nil {
			problem("record %d begins after its context has ended", r.Value)
		}
		for i, other := range list[:r.Value] {
			if other.Group != "" && other.Group == r.Group && !succeeded[i] {
				problem("record %d begins before record %d of its group has succeeded", r.Value, i)
			}
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			running--
		}()
		if err := behave(ctx, list[r.Value]); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		succeeded[r.Value] = true
		return nil
	})
	took := time.Since(start)
	mu.Lock()
	if took > ends+margin/2 {
		problem("it took %v, want at most %v", took, ends+margin/2)
	}
	problems = append(problems, accounts(failures, calls, succeeded)...)
	mu.Unlock()
	pass(never) // for what is still running
	mu.Lock()
	defer mu.Unlock()
	return problems
}

// accounts checks that every record is done or reported, and not both.
func accounts(failures []batch.Failure, calls []int, succeeded []bool) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	failed := map[string]error{}
	for _, f := range failures {
		if failed[f.ID] != nil {
			problem("record %s is reported twice", f.ID)
		}
		failed[f.ID] = f.Err
	}
	for i := range calls {
		err := failed[fmt.Sprint(i)]
		switch {
		case calls[i] > 1:
			problem("record %d is called %d times", i, calls[i])
		case err == nil && !succeeded[i]:
			problem("record %d is taken for done and is not", i)
		case err != nil && succeeded[i] && !errors.Is(err, batch.ErrDeadline):
			problem("record %d succeeded and failed with %v", i, err)
		case errors.Is(err, batch.ErrBehind) && calls[i] > 0:
			problem("record %d is said not to have begun", i)
		}
	}
	return problems
}
