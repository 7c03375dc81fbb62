package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentworker/internal/batch"
	"agentworker/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type record = batch.Record[func(context.Context) error]

func call(ctx context.Context, r record) error { return r.Value(ctx) }

var (
	errBroken = errors.New("broken")
	broken    = func(context.Context) error { return errBroken }
	fine      = func(context.Context) error { return nil }
)

// pass lets d pass on the bubble's clock.
func pass(d time.Duration) { <-time.After(d) }

// taking gives a function that takes d and does not care for its context.
func taking(d time.Duration) func(context.Context) error {
	return func(context.Context) error { pass(d); return nil }
}

// sentences are failures as text.
func sentences(failed []batch.Failure) []string {
	list := []string{}
	for _, f := range failed {
		list = append(list, f.ID+": "+f.Err.Error())
	}
	return list
}

func check(t *testing.T, failed []batch.Failure, want ...string) {
	t.Helper()
	if failed == nil {
		t.Error("failures: got nil, want a list")
	}
	if diff := cmp.Diff(append([]string{}, want...), sentences(failed)); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func elapsed(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if got := time.Since(start); got != want {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	for limit, seconds := range map[int]int{-1: 10, 0: 10, 1: 10, 3: 4, 10: 1, 100: 1} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var now, most, calls int
				records := make([]record, 10)
				for i := range records {
					records[i] = record{ID: fmt.Sprint(i), Value: func(context.Context) error {
						mu.Lock()
						calls, now = calls+1, now+1
						most = max(most, now)
						mu.Unlock()
						pass(time.Second)
						mu.Lock()
						now--
						mu.Unlock()
						return nil
					}}
				}
				start := time.Now()
				check(t, batch.Process(t.Context(), records, batch.Options{Concurrency: limit}, call))
				elapsed(t, start, time.Duration(seconds)*time.Second)
				if want := min(max(limit, 1), 10); most != want {
					t.Errorf("at once: got %d, want %d", most, want)
				}
				if calls != 10 {
					t.Errorf("calls: got %d, want 10", calls)
				}
			})
		})
	}
}

// journal notes what runs, in order.
type journal struct {
	mu   sync.Mutex
	list []string
}

func (j *journal) note(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, s)
}

// begun is what has been noted so far.
func (j *journal) begun() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.list)
}

func (j *journal) noting(fn func(context.Context) error) func(context.Context, record) error {
	return func(ctx context.Context, r record) error {
		j.note(r.ID)
		if fn != nil {
			return fn(ctx)
		}
		return r.Value(ctx)
	}
}

func TestGroupsRunInOrderAndSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		second := taking(time.Second)
		records := []record{
			{"a1", "g1", second},
			{"b1", "g2", second},
			{"a2", "g1", second},
			{"x", "", second},
			{"y", "", second},
			{"b2", "g2", second},
			{"a3", "g1", second},
		}
		start := time.Now()
		check(t, batch.Process(t.Context(), records, batch.Options{Concurrency: 10}, j.noting(nil)))
		elapsed(t, start, 3*time.Second)
		for _, group := range []string{"a", "b"} {
			got := slices.DeleteFunc(j.begun(), func(id string) bool { return !strings.HasPrefix(id, group) })
			if !slices.IsSorted(got) {
				t.Errorf("group %s: got %q, want them in order", group, got)
			}
		}
		if got, want := len(j.begun()), len(records); got != want {
			t.Errorf("calls: got %d, want %d", got, want)
		}
	})
}

// Case: mixed groups
func TestFailureStopsItsGroupOnly(t *testing.T) {
	t.Parallel()
	const behind = ": an earlier record of the group failed: "
	panicking := func(context.Context) error { panic("boom") }
	tests := map[string]struct {
		records []record
		want    []string
		ran     []string // sorted
	}{
		"head of three": {
			[]record{{"a1", "g1", broken}, {"a2", "g1", fine}, {"b1", "g2", fine}, {"a3", "g1", fine}, {"b2", "g2", fine}},
			[]string{"a1: broken", "a2" + behind + "a1", "a3" + behind + "a1"},
			[]string{"a1", "b1", "b2"},
		},
		"second of three": {
			[]record{{"a1", "g1", fine}, {"a2", "g1", broken}, {"a3", "g1", fine}},
			[]string{"a2: broken", "a3" + behind + "a2"},
			[]string{"a1", "a2"},
		},
		"g1, g2, g1": {
			[]record{{"a1", "g1", broken}, {"b1", "g2", fine}, {"a2", "g1", fine}},
			[]string{"a1: broken", "a2" + behind + "a1"},
			[]string{"a1", "b1"},
		},
		"panic": {
			[]record{{"a1", "g1", panicking}, {"b1", "g2", fine}, {"a2", "g1", fine}},
			[]string{"a1: panic: boom", "a2" + behind + "a1"},
			[]string{"a1", "b1"},
		},
		"without groups": {
			[]record{{"x", "", broken}, {"y", "", fine}, {"z", "", broken}},
			[]string{"x: broken", "z: broken"},
			[]string{"x", "y", "z"},
		},
		"all": {
			[]record{{"b1", "g2", broken}, {"x", "", broken}, {"a1", "g1", broken}, {"b2", "g2", fine}},
			[]string{"b1: broken", "x: broken", "a1: broken", "b2" + behind + "b1"},
			[]string{"a1", "b1", "x"},
		},
	}
	for name, tt := range tests {
		for _, concurrency := range []int{1, 10} {
			t.Run(fmt.Sprint(name, " ", concurrency), func(t *testing.T) {
				t.Parallel()
				var j journal
				failed := batch.Process(t.Context(), tt.records, batch.Options{Concurrency: concurrency}, j.noting(nil))
				check(t, failed, tt.want...)
				ran := j.begun()
				slices.Sort(ran)
				if !slices.Equal(ran, tt.ran) {
					t.Errorf("ran: got %q, want %q", ran, tt.ran)
				}
				for _, f := range failed {
					if behind := strings.Contains(f.Err.Error(), "earlier record"); errors.Is(f.Err, batch.ErrBehind) != behind {
						t.Errorf("%s: got %v, is ErrBehind: %t, want %t", f.ID, f.Err, !behind, behind)
					}
				}
			})
		}
	}
}

// Case: panic fails its record only
func TestPanicFailsItsRecordOnly(t *testing.T) {
	t.Parallel()
	inChild := func(ctx context.Context) error {
		return task.Go(ctx, fine, func(context.Context) error { panic("boom in a child") })
	}
	failed := batch.Process(t.Context(), []record{
		{"a", "", fine}, {"b", "", func(context.Context) error { panic("boom") }}, {"c", "", inChild}, {"d", "", fine},
	}, batch.Options{Concurrency: 2}, call)
	check(t, failed, "b: panic: boom", "c: panic: boom in a child")
	for _, f := range failed {
		if got := task.FailureOf(f.Err).Code; got != task.CodePanic {
			t.Errorf("%s: got code %s, want %s", f.ID, got, task.CodePanic)
		}
	}
}

func TestFewAndManyRecords(t *testing.T) {
	t.Parallel()
	check(t, batch.Process(t.Context(), nil, batch.Options{}, call))
	synctest.Test(t, func(t *testing.T) {
		// The largest batch that a mapping can be set to.
		const n = 10_000
		records := make([]record, n)
		var want []string
		var calls atomic.Int64
		for i := range records {
			records[i] = record{fmt.Sprint(i), "", func(context.Context) error {
				calls.Add(1)
				pass(time.Second)
				if i%1000 == 999 {
					return errBroken
				}
				return nil
			}}
			if i%1000 == 999 {
				want = append(want, fmt.Sprint(i, ": broken"))
			}
		}
		start := time.Now()
		check(t, batch.Process(t.Context(), records, batch.Options{Concurrency: 100}, call), want...)
		elapsed(t, start, n/100*time.Second)
		if got := calls.Load(); got != n {
			t.Errorf("calls: got %d, want %d", got, n)
		}
	})
}

func TestFailuresComeInTheBatchsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var records []record
		var want []string
		for i := range 50 {
			id := fmt.Sprint(i)
			records = append(records, record{id, "", func(context.Context) error {
				pass(time.Duration(50-i) * time.Second) // the last one fails first
				return errBroken
			}})
			want = append(want, id+": broken")
		}
		check(t, batch.Process(t.Context(), records, batch.Options{Concurrency: 50}, call), want...)
	})
}
