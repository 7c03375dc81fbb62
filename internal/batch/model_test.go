package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"agentworker/internal/batch"
)

// behaviour is what a record's function does in the model.
type behaviour struct {
	Group string
	Takes time.Duration
	Ends  string // "ok", "error", "panic"
	Heeds bool   // returns its context's error as soon as that has ended
}

func behaviours() *rapid.Generator[behaviour] {
	return rapid.Custom(func(t *rapid.T) behaviour {
		return behaviour{
			Group: rapid.SampledFrom([]string{"", "g1", "g2", "g3"}).Draw(t, "group"),
			// In steps of 7 ms, so that nothing ends at the same moment as a context, which is a multiple of 100 ms.
			Takes: time.Duration(rapid.IntRange(0, 40).Draw(t, "takes"))*7*time.Millisecond + time.Nanosecond,
			Ends:  rapid.SampledFrom([]string{"ok", "ok", "ok", "error", "panic"}).Draw(t, "ends"),
			Heeds: rapid.Bool().Draw(t, "heeds"),
		}
	})
}

// never is when the context ends of a batch without a deadline.
const never = time.Hour

// outcome says what must have come of a record.
type outcome string

const (
	done   outcome = "done"
	failed outcome = "failed"
	behind outcome = "behind"
	late   outcome = "late"
)

// model says in a plain way, for as many records at once as there are, what must come of each, whether it must have
// begun, and when Process returns.
func model(records []behaviour, contextEnds, margin time.Duration) (want []outcome, begun []bool, took time.Duration) {
	want, begun = make([]outcome, len(records)), make([]bool, len(records))
	deaf := contextEnds + margin/2
	free, head := map[string]time.Duration{}, map[string]outcome{}
	for i, r := range records {
		group := r.Group
		if group == "" {
			group = fmt.Sprint("#", i)
		}
		start := free[group]
		switch {
		case head[group] == failed:
			want[i] = behind
			continue
		case head[group] == late || start >= contextEnds:
			want[i], head[group] = late, late
			took = max(took, min(start, deaf))
			continue
		}
		begun[i] = true
		end, result := start+r.Takes, failed
		if r.Ends == "ok" {
			result = done
		}
		if r.Heeds && end > contextEnds {
			end, result = contextEnds, failed
		}
		if end > deaf {
			end, result = deaf, late
		}
		free[group], want[i] = end, result
		if result != done {
			head[group] = result
		}
		took = max(took, end)
	}
	return want, begun, took
}

func TestProcessDoesWhatTheModelSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(behaviours(), 0, 12).Draw(rt, "records")
		// Without a margin what ends together with the context may or may not be heard.
		margin := time.Duration(rapid.IntRange(1, 3).Draw(rt, "margin")) * 50 * time.Millisecond
		ends := rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, never}).Draw(rt, "context ends")

		want, wantBegun, wantTook := model(list, ends, margin)
		var got []outcome
		var calls []int
		var took time.Duration
		var problems []string
		synctest.Test(t, func(t *testing.T) { got, calls, took, problems = process(t, list, ends, margin) })
		for i := range list {
			if got[i] != want[i] {
				rt.Errorf("record %d: got %s, want %s", i, got[i], want[i])
			}
			wantCalls := 0
			if wantBegun[i] {
				wantCalls = 1
			}
			if calls[i] != wantCalls {
				rt.Errorf("record %d: got %d calls, want %d", i, calls[i], wantCalls)
			}
		}
		if took != wantTook {
			rt.Errorf("took %v, want %v", took, wantTook)
		}
		for _, problem := range problems {
			rt.Error(problem)
		}
	})
}

// process runs the records, all at once, and says what came of each.
func process(t *testing.T, list []behaviour, ends, margin time.Duration) (got []outcome, calls []int, took time.Duration, problems []string) {
	t.Helper()
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
	var mu sync.Mutex
	calls = make([]int, len(list))
	failures := batch.Process(ctx, records, batch.Options{Concurrency: max(len(list), 1), Margin: margin},
		func(ctx context.Context, r batch.Record[int]) error {
			mu.Lock()
			calls[r.Value]++
			mu.Unlock()
			return behave(ctx, list[r.Value])
		})
	took = time.Since(start)
	before := sentences(failures)
	pass(never) // whatever comes now is ignored
	if after := sentences(failures); !slices.Equal(before, after) {
		problems = append(problems, fmt.Sprintf("afterwards the failures are %q, want still %q", after, before))
	}
	got = slices.Repeat([]outcome{done}, len(list))
	at := -1
	for _, f := range failures {
		i := slices.IndexFunc(records, func(r batch.Record[int]) bool { return r.ID == f.ID })
		if i <= at {
			problems = append(problems, fmt.Sprintf("failures: got %q, want the batch's order", before))
		}
		at = i
		switch {
		case errors.Is(f.Err, batch.ErrBehind):
			got[i] = behind
		case errors.Is(f.Err, batch.ErrDeadline):
			got[i] = late
		default:
			got[i] = failed
			if text := f.Err.Error(); !strings.Contains(text, list[i].Ends) && !errors.Is(f.Err, context.DeadlineExceeded) {
				problems = append(problems, fmt.Sprintf("record %d: got %q, want its own %s", i, text, list[i].Ends))
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return got, slices.Clone(calls), took, problems
}

func behave(ctx context.Context, b behaviour) error {
	if b.Heeds {
		select {
		case <-time.After(b.Takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	} else {
		pass(b.Takes)
	}
	switch b.Ends {
	case "error":
		return errors.New("error")
	case "panic":
		panic("panic")
	}
	return nil
}
