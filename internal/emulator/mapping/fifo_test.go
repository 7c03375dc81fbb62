package mapping_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

// Groups run side by side, a group never beside itself, and each in order, whatever fails how often.
func TestGroupsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3, 10} {
		t.Run(fmt.Sprintf("batches of %d", size), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(true, 20*time.Second)
				const groups, each = 5, 6
				var all []*stored
				for i := range each {
					for g := range groups {
						all = append(all, grouped(fmt.Sprintf("g%d", g), fmt.Sprintf("g%d-%d", g, i)))
					}
				}
				q.send(all...)

				var mu sync.Mutex
				busy, next, sideBySide := map[string]bool{}, map[string]int{}, 0
				random := rand.New(rand.NewPCG(1, uint64(size)))
				_, _, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
					mu.Lock()
					mine := map[string]bool{}
					for _, r := range records {
						group := r.Attributes["MessageGroupId"]
						if busy[group] && !mine[group] {
							t.Errorf("group %s is in two invocations at once", group)
						}
						busy[group], mine[group] = true, true
					}
					sideBySide = max(sideBySide, len(busy))
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					for group := range mine {
						delete(busy, group)
					}
					if random.IntN(5) == 0 {
						return lambda.Result{FunctionError: "Unhandled"}, nil
					}
					failed, list := map[string]bool{}, []map[string]string{}
					for _, r := range records {
						group := r.Attributes["MessageGroupId"]
						if failed[group] || random.IntN(4) == 0 {
							failed[group] = true
							list = append(list, map[string]string{"itemIdentifier": r.MessageID})
							continue
						}
						if want := fmt.Sprintf("%s-%d", group, next[group]); r.MessageID != want {
							t.Errorf("got %s, want %s", r.MessageID, want)
						}
						next[group]++
					}
					payload, err := json.Marshal(map[string]any{"batchItemFailures": list})
					return lambda.Result{Payload: payload}, err
				}), func(c *mapping.Config) { c.BatchSize = size })
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if q.left() != "" {
					t.Errorf("left: %q", q.left())
				}
				if sideBySide < 2 {
					t.Errorf("groups side by side: got %d at most, want several", sideBySide)
				}
				stop()
			})
		})
	}
}

// A batch that outlives its visibility, here because the function was throttled, does not meet the redelivery of its own
// messages in a second invocation.
func TestGroupIsLockedBeyondItsVisibility(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(true, 20*time.Second)
		q.send(grouped("a", "a1"))
		var mu sync.Mutex
		var calls log
		attempts, now := 0, 0
		began := time.Now()
		_, _, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
			mu.Lock()
			attempts++
			throttle := time.Since(began) < 12*time.Second
			if !throttle {
				now++
				calls.add("%s×%s, %d at once", names(records), records[0].Attributes["ApproximateReceiveCount"], now)
			}
			mu.Unlock()
			if throttle {
				return lambda.Result{}, lambda.ErrThrottled
			}
			time.Sleep(10 * time.Second) // past 20 s
			mu.Lock()
			defer mu.Unlock()
			now--
			return lambda.Result{}, nil
		}), func(c *mapping.Config) { c.BatchSize = 1 })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		// The first run ends with a handle that SQS no longer honours, so that the message runs again, alone.
		if got, want := calls.text(), "a1×1, 1 at once\na1×2, 1 at once"; got != want {
			t.Errorf("runs: got %q, want %q", got, want)
		}
		if q.left() != "" {
			t.Errorf("left: %q", q.left())
		}
		stop()
	})
}

// With batches of one a failing head costs those behind it no attempt.
func TestFailingHeadCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(true, 20*time.Second)
		q.send(grouped("a", "a1"), grouped("a", "a2"), grouped("b", "b1"), grouped("a", "a3"))
		var calls log
		_, _, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
			calls.add("%s", names(records))
			if records[0].MessageID == "a1" && records[0].Attributes["ApproximateReceiveCount"] != "3" {
				return lambda.Result{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"a1"}]}`)}, nil
			}
			return lambda.Result{}, nil
		}), func(c *mapping.Config) { c.BatchSize, c.MaximumConcurrency = 1, 2 })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got, want := q.left(), "a1×2 a2×0 a3×0"; got != want {
			t.Errorf("receive counts: got %q, want %q", got, want)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got, want := strings.ReplaceAll(calls.text(), "\n", " "), "a1 b1 a1 a1 a2 a3"; got != want && got != "b1 a1 a1 a1 a2 a3" {
			t.Errorf("runs: got %q, want %q", got, want)
		}
		stop()
	})
}
