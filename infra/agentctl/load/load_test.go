package load_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentworker/infra/agentctl/api"
	"agentworker/infra/agentctl/load"
)

// ended is a task that has taken so long by its record.
func ended(status string, took time.Duration) api.Task {
	from := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	to := from.Add(took)
	return api.Task{About: api.About{Status: status, SubmittedAt: &from, UpdatedAt: &to}}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAReportOfLatenciesAndThroughput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		submit := func(ctx context.Context, i int) (string, error) {
			return fmt.Sprint(i), pause(ctx, time.Duration(i+1)*time.Millisecond)
		}
		asked := atomic.Int64{}
		wait := func(ctx context.Context, id string, longest time.Duration) (api.Task, error) {
			if longest != api.MaxWait {
				t.Errorf("waits for %v, want %v", longest, api.MaxWait)
			}
			if asked.Add(1)%2 == 1 { // the first time it has not ended
				return ended("running", 0), pause(ctx, longest)
			}
			i := 0
			_, err := fmt.Sscan(id, &i)
			return ended(api.Succeeded, time.Duration(i+1)*time.Second), err
		}
		told := 0
		got := load.Run(t.Context(), load.Options{Tasks: 100, Concurrency: 1, Timeout: time.Hour, Done: func(n int) { told = n }}, submit, wait)
		seconds := 100*25 + 5.050
		want := load.Report{
			Tasks: 100, Accepted: 100, Succeeded: 100, Seconds: seconds, PerSecond: 100 / seconds, Reasons: map[string]int{},
			Submit:   load.Latency{Count: 100, P50: 50, P90: 90, P99: 99, Max: 100},
			EndToEnd: load.Latency{Count: 100, P50: 50_000, P90: 90_000, P99: 99_000, Max: 100_000},
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" || told != 100 {
			t.Errorf("told %d (-want +got):\n%s", told, diff)
		}
	})
}

func TestSoManyAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		change := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most = max(most, now)
		}
		began := time.Now()
		got := load.Run(t.Context(), load.Options{Tasks: 100, Concurrency: 7, Timeout: time.Hour},
			func(context.Context, int) (string, error) {
				change(1)
				return "id", nil
			},
			func(ctx context.Context, _ string, _ time.Duration) (api.Task, error) {
				err := pause(ctx, time.Second)
				change(-1)
				return ended(api.Succeeded, time.Second), err
			})
		if took := time.Since(began); most != 7 || took != 15*time.Second || got.Succeeded != 100 {
			t.Errorf("%d at once, %v, %+v, want 7 for 15 s", most, took, got)
		}
	})
}

func TestFailuresAreCountedByReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := load.Run(t.Context(), load.Options{Tasks: 60, Concurrency: 10, Timeout: time.Minute},
			func(_ context.Context, i int) (string, error) {
				switch i % 6 {
				case 0:
					return "", &api.Problem{Status: 503, Code: "QUEUE_UNAVAILABLE"}
				case 1:
					return "", &api.Problem{Status: 429}
				case 2:
					return "", errors.New("connection refused")
				}
				return fmt.Sprint(i % 6), nil
			},
			func(ctx context.Context, id string, longest time.Duration) (api.Task, error) {
				switch id {
				case "3":
					failed := ended(api.Failed, time.Second)
					failed.Error = &api.Failure{Code: "MODEL_DOWN"}
					return failed, nil
				case "4":
					return ended("retrying", 0), pause(ctx, longest)
				}
				return ended(api.Succeeded, time.Second), nil
			})
		want := load.Report{
			Tasks: 60, Accepted: 30, Succeeded: 10, Failed: 50,
			Reasons: map[string]int{"QUEUE_UNAVAILABLE": 10, "HTTP 429": 10, load.Unreachable: 10, "MODEL_DOWN": 10, load.NotEnded: 10},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(load.Report{}, "Seconds", "PerSecond", "Submit", "EndToEnd")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got.Seconds > 121 {
			t.Errorf("took %v s, want no more than two rounds of a minute", got.Seconds)
		}
		if got.EndToEnd.Count != 10 || got.Submit.Count != 30 {
			t.Errorf("measured %d and %d, want 10 that have succeeded and 30 that were accepted", got.EndToEnd.Count, got.Submit.Count)
		}
	})
}

func TestAnInterruptionReportsWhatWasDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer stop()
		got := load.Run(ctx, load.Options{Tasks: 1000, Concurrency: 4, Timeout: time.Hour},
			func(context.Context, int) (string, error) { return "id", nil },
			func(ctx context.Context, _ string, _ time.Duration) (api.Task, error) {
				return ended(api.Succeeded, time.Second), pause(ctx, time.Second)
			})
		want := load.Report{Tasks: 1000, Accepted: 44, Succeeded: 40, UnderWay: 4, Interrupted: true, Reasons: map[string]int{}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(load.Report{}, "Seconds", "PerSecond", "Submit", "EndToEnd")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
