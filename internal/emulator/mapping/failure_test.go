package mapping_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

func TestThrottledInvokeIsRepeatedWithinTheVisibility(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, 30*time.Second)
		q.send(msg("m1"))
		began, attempts := time.Now(), 0
		_, l, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) {
			attempts++
			if time.Since(began) < 12*time.Second {
				return lambda.Result{}, lambda.ErrThrottled
			}
			return lambda.Result{}, nil
		}), nil)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if q.left() != "" || attempts < 3 {
			t.Errorf("got %q left after %d attempts, want nothing after several", q.left(), attempts)
		}
		if l.outcomes() != "succeeded" {
			t.Errorf("outcome: got %q, want succeeded", l.outcomes())
		}
		stop()
	})
}

func TestThrottledBatchIsGivenUpWhenItsVisibilityEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, 30*time.Second)
		q.send(msg("m1"), msg("m2"))
		var late []string
		began := time.Now()
		_, l, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
			if time.Since(began) > 30*time.Second && records[0].Attributes["ApproximateReceiveCount"] == "1" {
				late = append(late, names(records))
			}
			return lambda.Result{}, lambda.ErrThrottled
		}), nil)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if got, want := q.left(), "m1×2 m2×2"; got != want {
			t.Errorf("receive counts: got %q, want %q: a throttle burns a receive", got, want)
		}
		if got := l.outcomes(); got != "expired" {
			t.Errorf("outcomes: got %q, want expired", got)
		}
		if len(late) > 0 {
			t.Errorf("invoked with lapsed messages: %q", late)
		}
		if got := fmt.Sprint(l.events[0].Expired); got != "[m1 m2]" {
			t.Errorf("expired: got %s, want [m1 m2]", got)
		}
		stop()
	})
}

// Without ReportBatchItemFailures failures halve the concurrency and successes bring it back; with it they do not.
func TestConcurrencyBacksOff(t *testing.T) {
	t.Parallel()
	for _, report := range []bool{false, true} {
		t.Run(fmt.Sprintf("ReportBatchItemFailures %v", report), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(false, time.Hour)
				var all []*stored
				for i := range 300 {
					all = append(all, msg(fmt.Sprint(i)))
				}
				q.send(all...)
				began := time.Now()
				var mu sync.Mutex
				now, peak := 0, map[string]int{}
				_, _, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) {
					phase, fails := "recovered", false
					switch elapsed := time.Since(began); {
					case elapsed < 5*time.Second:
						phase, fails = "first", true
					case elapsed < 10*time.Second:
						phase, fails = "backed off", true
					case elapsed < 25*time.Second:
						phase = "recovering"
					}
					mu.Lock()
					now++
					peak[phase] = max(peak[phase], now)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					now--
					mu.Unlock()
					if fails {
						return lambda.Result{FunctionError: "Unhandled"}, nil
					}
					return lambda.Result{}, nil
				}), func(c *mapping.Config) {
					c.BatchSize, c.MaximumConcurrency, c.ReportBatchItemFailures = 1, 8, report
				})
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				want := map[string]int{"first": 8, "backed off": 1, "recovered": 8}
				if report {
					want["backed off"] = 8
				}
				for phase, n := range want {
					if peak[phase] != n {
						t.Errorf("%s: got %d invocations at once, want %d", phase, peak[phase], n)
					}
				}
				stop()
			})
		})
	}
}

func TestReceiveErrorsAreRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, 30*time.Second)
		broken := 0
		q.failReceive = func() error {
			if broken < 3 {
				broken++
				return errors.New("connection refused")
			}
			return nil
		}
		q.send(msg("m1"))
		_, l, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) { return lambda.Result{}, nil }), nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got, want := l.outcomes(), "receive-error receive-error receive-error succeeded"; got != want || q.left() != "" {
			t.Errorf("got %q and %q left, want %q and nothing", got, q.left(), want)
		}
		stop()
	})
}

func TestStopFinishesAndReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Hour)
		q.send(msg("runs"))
		var calls log
		_, l, stop := run(t, q, function(func(ctx context.Context, records []record) (lambda.Result, error) {
			calls.add("%s", names(records))
			time.Sleep(5 * time.Second)
			return lambda.Result{}, ctx.Err()
		}), func(c *mapping.Config) { c.BatchingWindow = 10 * time.Second })
		time.Sleep(11 * time.Second) // the first batch runs
		q.send(msg("waits"))
		synctest.Wait()
		time.Sleep(time.Second) // received, in the window
		began := time.Now()
		stop()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("stop took %v, want the 3 s until the running invocation ended", took)
		}
		if got := calls.text(); got != "runs" {
			t.Errorf("runs: got %q, want only the first", got)
		}
		if got := fmt.Sprint(q.released); got != "[waits]" {
			t.Errorf("released: got %s, want [waits]", got)
		}
		if got, want := q.left(), "waits×1"; got != want {
			t.Errorf("left: got %q, want %q", got, want)
		}
		if got := l.outcomes(); got != "succeeded" {
			t.Errorf("outcomes: got %q, want succeeded", got)
		}
	})
}

// What was received over the size of the last batch, and waits for a place, is released too.
func TestStopReleasesWhatWaitsForAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Hour)
		body := strings.Repeat("x", 1<<20)
		for i := range 20 {
			m := msg(fmt.Sprint(i))
			m.body = body
			q.send(m)
		}
		_, _, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) {
			time.Sleep(time.Minute)
			return lambda.Result{}, nil
		}), func(c *mapping.Config) {
			c.BatchSize, c.BatchingWindow, c.MaximumConcurrency = 100, time.Second, 2
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		received := strings.Count(q.left(), "×1")
		stop()
		if left := len(strings.Fields(q.left())); left != 10 || len(q.released) != received-10 || received <= 10 {
			t.Errorf("of %d received messages 10 finish: got %d left of 20, %d released", received, left, len(q.released))
		}
	})
}

func TestStopReleasesWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	for name, invoke := range map[string]func(context.Context) error{
		"running":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"throttled": func(context.Context) error { return lambda.ErrThrottled },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(false, time.Hour)
				q.send(msg("m1"))
				_, l, stop := run(t, q, function(func(ctx context.Context, _ []record) (lambda.Result, error) {
					return lambda.Result{}, invoke(ctx)
				}), func(c *mapping.Config) { c.DrainTimeout = 2 * time.Second })
				time.Sleep(time.Second)
				synctest.Wait()
				began := time.Now()
				stop()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("stop took %v, want at most the drain timeout of 2 s", took)
				}
				if got := fmt.Sprint(q.released); got != "[m1]" || l.outcomes() != "released" {
					t.Errorf("released: got %s, outcomes %q, want [m1], released", got, l.outcomes())
				}
			})
		})
	}
}

// What the function finished in the very moment that the time was up is deleted all the same.
func TestFinishedWorkIsDeletedAfterTheDrainTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Hour)
		q.send(msg("m1"))
		_, _, stop := run(t, q, function(func(ctx context.Context, _ []record) (lambda.Result, error) {
			<-ctx.Done()
			return lambda.Result{}, nil
		}), func(c *mapping.Config) { c.DrainTimeout = 2 * time.Second })
		time.Sleep(time.Second)
		stop()
		if got := q.left(); got != "" {
			t.Errorf("left: got %q, want nothing", got)
		}
	})
}

// A function that was closed by mistake does not make the mapping spin.
func TestInvokeErrorLeavesTheMessagesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, 30*time.Second)
		q.send(msg("m1"))
		_, l, stop := run(t, q, function(func(context.Context, []record) (lambda.Result, error) { return lambda.Result{}, lambda.ErrClosed }), nil)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := q.left(); got != "m1×1" || l.outcomes() != "invoke-error" {
			t.Errorf("got %q, outcomes %q, want m1×1, invoke-error", got, l.outcomes())
		}
		stop()
	})
}

func TestEndlessChainIsCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Hour)
		loop := msg("m0")
		q.send(loop, msg("innocent"))
		invocations := 0
		_, l, stop := run(t, q, tracing(func(trace string, records []record) {
			for _, r := range records {
				if r.MessageID != "innocent" { // sends itself again, as the SDK would: with the trace of the invocation
					invocations++
					q.send(&stored{id: fmt.Sprintf("m%d", invocations), body: "again", trace: trace})
				}
			}
		}), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if invocations != 16 || q.left() != "m16×1" {
			t.Errorf("got %d invocations and %q left, want 16 and m16×1", invocations, q.left())
		}
		stop()
		var dropped []string
		for _, e := range l.events {
			if e.Outcome == mapping.OutcomeRecursive {
				dropped = append(dropped, e.Dropped...)
			}
		}
		if fmt.Sprint(dropped) != "[m16]" {
			t.Errorf("dropped as recursive: got %v, want [m16]", dropped)
		}
	})
}

// tracing is an Invoker that sees the tracing header, which the function finds in its environment.
type tracing func(trace string, records []record)

func (f tracing) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	return function(func(ctx context.Context, records []record) (lambda.Result, error) {
		f(lambda.Trace(ctx), records)
		return lambda.Result{}, nil
	}).Invoke(ctx, payload)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := mapping.Config{
		QueueURL: "http://127.0.0.1/1/q", QueueARN: standardARN, SQS: newQueue(false, time.Minute),
		Function: function(nil),
	}
	tests := []struct {
		name   string
		change func(*mapping.Config)
		want   []string
	}{
		{"defaults", func(*mapping.Config) {}, nil},
		{"largest", func(c *mapping.Config) {
			c.BatchSize, c.BatchingWindow, c.MaximumConcurrency = 10_000, 300*time.Second, 1000
		}, nil},
		{"FIFO", func(c *mapping.Config) { c.QueueARN, c.BatchSize = fifoARN, 10 }, nil},
		{"FIFO batch", func(c *mapping.Config) { c.QueueARN, c.BatchSize = fifoARN, 11 }, []string{"BatchSize 11"}},
		{"FIFO window", func(c *mapping.Config) { c.QueueARN, c.BatchingWindow = fifoARN, time.Second }, []string{"BatchingWindow 1s"}},
		{"batch", func(c *mapping.Config) { c.BatchSize, c.BatchingWindow = 10_001, time.Second }, []string{"BatchSize 10001"}},
		{"batch without window", func(c *mapping.Config) { c.BatchSize = 11 }, []string{"BatchSize 11 needs a BatchingWindow"}},
		{"window", func(c *mapping.Config) { c.BatchingWindow = 301 * time.Second }, []string{"BatchingWindow 5m1s"}},
		{"split second", func(c *mapping.Config) { c.BatchingWindow = 1500 * time.Millisecond }, []string{"whole number of seconds"}},
		{"concurrency 1", func(c *mapping.Config) { c.MaximumConcurrency = 1 }, []string{"MaximumConcurrency 1 "}},
		{"concurrency 1001", func(c *mapping.Config) { c.MaximumConcurrency = 1001 }, []string{"MaximumConcurrency 1001 "}},
		{
			"everything at once", func(c *mapping.Config) { *c = mapping.Config{QueueARN: "q", BatchSize: -1, MaximumConcurrency: -1} },
			[]string{"QueueURL", "QueueARN", "Function", "SQS", "BatchSize -1", "MaximumConcurrency -1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config := good
			test.change(&config)
			_, err := mapping.New(config)
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want a sentence with %q", err, want)
				}
			}
		})
	}
}

func TestVisibilityBelowTheFunctionTimeoutIsRefused(t *testing.T) {
	t.Parallel()
	m, err := mapping.New(mapping.Config{
		QueueURL: "http://127.0.0.1/1/q", QueueARN: standardARN, SQS: newQueue(false, 30*time.Second), Function: function(nil),
		FunctionTimeout: 120 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Run(t.Context())
	const want = "InvalidParameterValueException: Queue visibility timeout: 30 seconds is less than Function timeout: 120 seconds"
	if !errors.Is(err, mapping.ErrVisibilityTooShort) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// hanging does not say what its visibility timeout is.
type hanging struct {
	*queue
	asked chan struct{}
}

func (h hanging) GetQueueAttributes(ctx context.Context, _ *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	close(h.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// To be ended while it begins is no failure, as for a mapping that is disabled right after it was made.
func TestAMappingThatIsEndedWhileItBeginsEndsWell(t *testing.T) {
	t.Parallel()
	q := hanging{newQueue(false, time.Minute), make(chan struct{})}
	m, err := mapping.New(mapping.Config{
		QueueURL: "http://sqs/q", QueueARN: "arn:aws:sqs:us-east-1:000000000000:q", Region: "us-east-1",
		BatchSize: 1, MaximumConcurrency: 2, FunctionTimeout: time.Second, Function: function(nil), SQS: q,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	<-q.asked
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v, want no error", err)
	}
}
