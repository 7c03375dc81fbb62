package mapping_test

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

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

func TestBatchIsCutBySizeAndWindow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		size   int
		window time.Duration
		want   string
	}{
		{"no window: what one receive brings", 10, 0, "0 s: 10, 0 s: 2, 2 s: 1, 4 s: 1"},
		{"size below a receive", 5, 0, "0 s: 2, 0 s: 5, 0 s: 5, 2 s: 1, 4 s: 1"},
		{"window ends", 100, 5 * time.Second, "5 s: 14"},
		{"window ends before the last", 100, 3 * time.Second, "3 s: 13, 7 s: 1"},
		{"size before the window", 12, 5 * time.Second, "0 s: 12, 7 s: 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(false, time.Minute)
				var calls log
				began := time.Now()
				_, _, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
					calls.add("%d s: %d", int(time.Since(began).Seconds()), len(records))
					return lambda.Result{}, nil
				}), func(c *mapping.Config) { c.BatchSize, c.BatchingWindow = test.size, test.window })
				var twelve []*stored
				for i := range 12 {
					twelve = append(twelve, msg(fmt.Sprint(i)))
				}
				q.send(twelve...)
				time.Sleep(2500 * time.Millisecond)
				q.send(msg("late"))
				time.Sleep(2 * time.Second)
				q.send(msg("later"))
				time.Sleep(20 * time.Second)
				synctest.Wait()
				lines := strings.Split(calls.text(), "\n")
				slices.Sort(lines) // those of one moment run side by side
				if got := strings.Join(lines, ", "); got != test.want {
					t.Errorf("batches: got %s, want %s", got, test.want)
				}
				stop()
			})
		})
	}
}

func TestBatchIsCutBySixMegabytes(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo %v", fifo), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(fifo, time.Minute)
				body := strings.Repeat("x", 1<<20)
				var sent []string
				for i := range 10 {
					m := msg(fmt.Sprint(i))
					m.body, m.group = body, "g"
					q.send(m)
					sent = append(sent, m.id)
				}
				var calls log
				_, l, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
					calls.add("%s", names(records))
					time.Sleep(time.Second)
					return lambda.Result{}, nil
				}), func(c *mapping.Config) {
					if !fifo {
						c.BatchSize, c.BatchingWindow = 100, time.Second
					}
				})
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if got, want := calls.text(), "0 1 2 3 4\n5 6 7 8 9"; got != want {
					t.Errorf("batches: got %q, want %q", got, want)
				}
				if left := q.left(); left != "" {
					t.Errorf("left: got %q, want nothing of %v", left, sent)
				}
				if got, want := l.outcomes(), "succeeded succeeded"; got != want {
					t.Errorf("outcomes: got %q, want %q", got, want)
				}
				stop()
			})
		})
	}
}

// A FIFO batch that needs two invocations: what stands behind a failed message of its group is not run before it.
func TestSecondPartOfAFIFOBatchWaitsForTheFailedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(true, time.Minute)
		body := strings.Repeat("x", 1<<20)
		for i := range 8 {
			m := grouped([]string{"a", "b"}[i%2], fmt.Sprint(i))
			m.body = body
			q.send(m)
		}
		var calls log
		_, _, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
			calls.add("%s", names(records))
			if records[0].Attributes["ApproximateReceiveCount"] == "1" && records[0].MessageID == "0" {
				return lambda.Result{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"4"}]}`)}, nil
			}
			return lambda.Result{}, nil
		}), nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		// 5 and 7 are of the group that did not fail; 6 stands behind 4.
		if got, want := calls.text(), "0 1 2 3 4\n5 7"; got != want {
			t.Errorf("batches: got %q, want %q", got, want)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got, want := calls.text(), "0 1 2 3 4\n5 7\n4 6"; got != want {
			t.Errorf("batches: got %q, want %q", got, want)
		}
		stop()
	})
}

// Case: throttle -> DLQ (maximum concurrency burns no receives)
func TestNothingIsReceivedBeyondTheMaximumConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Minute)
		for i := range 9 {
			q.send(msg(fmt.Sprint(i)))
		}
		proceed := make(chan struct{})
		var mu sync.Mutex
		now, most := 0, 0
		m, _, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			<-proceed
			mu.Lock()
			now--
			mu.Unlock()
			return lambda.Result{}, nil
		}), func(c *mapping.Config) { c.BatchSize, c.MaximumConcurrency = 1, 3 })
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if want := "0×1 1×1 2×1 3×0 4×0 5×0 6×0 7×0 8×0"; q.left() != want {
			t.Errorf("receive counts: got %q, want %q", q.left(), want)
		}
		close(proceed)
		time.Sleep(time.Second)
		synctest.Wait()
		if q.left() != "" || most != 3 {
			t.Errorf("got %d at once and %q left, want 3 and nothing", most, q.left())
		}
		stop()
		if got, want := m.Counts(), (mapping.Counts{PolledEventCount: 9, InvokedEventCount: 9, DeletedEventCount: 9}); got != want {
			t.Errorf("counts: got %+v, want %+v", got, want)
		}
	})
}

// Case: partial send or delete (Failed entries, and entries in no list of the answer)
// Case: delete batch > 10
func TestDeletes(t *testing.T) {
	t.Parallel()
	throttled := &types.BatchResultErrorEntry{Code: aws.String("InternalError")}
	invalid := &types.BatchResultErrorEntry{Code: aws.String("ReceiptHandleIsInvalid"), SenderFault: true}
	tests := []struct {
		name      string
		fail      func(call int, entry types.DeleteMessageBatchRequestEntry) *types.BatchResultErrorEntry
		call      func(call int) error
		wantSizes string
		wantLeft  string
	}{
		{"ten at most in a call", nil, nil, "[10 10 5]", ""},
		{"failed entries again", func(call int, entry types.DeleteMessageBatchRequestEntry) *types.BatchResultErrorEntry {
			if call <= 2 && strings.HasPrefix(*entry.ReceiptHandle, "1/") {
				return throttled
			}
			return nil
		}, nil, "[10 1 1 10 5]", ""},
		{"entries in no list again", func(call int, entry types.DeleteMessageBatchRequestEntry) *types.BatchResultErrorEntry {
			if call <= 2 && strings.HasPrefix(*entry.ReceiptHandle, "1/") {
				return &types.BatchResultErrorEntry{Code: aws.String(unaccounted)}
			}
			return nil
		}, nil, "[10 1 1 10 5]", ""},
		{"failed call again", nil, func(call int) error {
			if call == 1 {
				return errors.New("connection reset")
			}
			return nil
		}, "[10 10 10 5]", ""},
		{"lost for good", func(_ int, entry types.DeleteMessageBatchRequestEntry) *types.BatchResultErrorEntry {
			if strings.HasPrefix(*entry.ReceiptHandle, "1/") {
				return throttled
			}
			return nil
		}, nil, "[10 1 1 1 1 10 5]", "1×1"},
		{"no use", func(_ int, entry types.DeleteMessageBatchRequestEntry) *types.BatchResultErrorEntry {
			if strings.HasPrefix(*entry.ReceiptHandle, "1/") {
				return invalid
			}
			return nil
		}, nil, "[10 10 5]", "1×1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(false, time.Hour)
				q.failDelete, q.failCall = test.fail, test.call
				for i := range 25 {
					q.send(msg(fmt.Sprint(i)))
				}
				_, l, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) {
					return lambda.Result{}, nil
				}), func(c *mapping.Config) { c.BatchSize, c.BatchingWindow = 25, time.Second })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got := fmt.Sprint(q.sizes); got != test.wantSizes {
					t.Errorf("delete calls: got %s, want %s", got, test.wantSizes)
				}
				if q.left() != test.wantLeft {
					t.Errorf("left: got %q, want %q", q.left(), test.wantLeft)
				}
				if got := l.outcomes(); got != "succeeded" {
					t.Errorf("outcome: got %q, want succeeded whatever became of the deletes", got)
				}
				if want := len(strings.Fields(test.wantLeft)); len(l.events[0].DeleteFailed) != want || l.events[0].Deleted != 25-want {
					t.Errorf("event: got %d deleted, failed %v, want %d failed", l.events[0].Deleted, l.events[0].DeleteFailed, want)
				}
				stop()
			})
		})
	}
}
