package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// inBubble is [setUp] for a test with a clock of its own: invocations of a minute take no time.
func inBubble(t *testing.T, do script, test func(t *testing.T, f *fixture), change ...func(*worker.Config)) {
	t.Helper()
	client := dynamodbtest.New(t)
	table := newOutside(t, client, dynamodbtest.Table(t, client))
	// The bubble's clock is decades behind the table's.
	store := checkpoint.New(table, table.name, checkpoint.Options{Retention: 100 * 365 * 24 * time.Hour})
	f := setUp(t, do, append(change, func(c *worker.Config) { c.Store = store })...)
	f.store = store
	synctest.Test(t, func(t *testing.T) { test(t, f) })
}

// long is a handler of many steps that take 12 s each: four fit into an invocation of a minute.
func long(steps int, ran map[string]int) func(context.Context, task.Run) (string, error) {
	return func(ctx context.Context, run task.Run) (string, error) {
		for i := range steps {
			name := fmt.Sprintf("step-%d", i+1)
			if _, err := task.Step(ctx, run, name, func(ctx context.Context, _ *task.Effects) (string, error) {
				ran[name]++
				return name, sleep(ctx, 12*time.Second)
			}); err != nil {
				return "", err
			}
		}
		return "done", nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A run of nine long steps takes three deliveries. Between them the task is queued, at the step that comes next; the
// message comes back after a second; and none of it is a failed try, though one more would have been the last.
func TestALongRunGoesOnAtTheNextDelivery(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	inBubble(t, script{"long": long(9, ran)}, func(t *testing.T, f *fixture) {
		t.Helper()
		id, m := newTask("long")
		for delivery, next := range []string{"step-5", "step-9"} {
			wantFailed(t, f.handle(t, m), m)
			rec := f.wantStatus(t, id, checkpoint.Queued, "")
			if rec.Step != next || rec.Tries() != 0 || !rec.NextRetryAt.IsZero() || !rec.Lease.Until.IsZero() || len(rec.Attempts) != delivery+1 {
				t.Errorf("after delivery %d: got %+v, want it to go on at %s, without a lease, a retry or a try", delivery+1, rec, next)
			}
			if last := rec.Attempts[delivery]; last.Error == nil || last.Error.Code != task.CodeContinued || last.Step != next || last.EndedAt.IsZero() {
				t.Errorf("attempt %d: got %+v, want %s at %s", delivery+1, last, task.CodeContinued, next)
			}
			f.queue.wantAfter(t, m, 1, 1)
			m = again(m)
			_ = sleep(t.Context(), time.Second)
		}
		wantFailed(t, f.handle(t, m))
		rec := f.wantStatus(t, id, checkpoint.Succeeded, "")
		if len(rec.Steps) != 10 || len(rec.Attempts) != 3 || f.result(t, id) != `"done"` {
			t.Errorf("got %d steps in %d attempts, want 10 in 3", len(rec.Steps), len(rec.Attempts))
		}
		for name, n := range ran {
			if n != 1 {
				t.Errorf("%s ran %d times, want once", name, n)
			}
		}
		if got := strings.Count(f.metrics.String(), `"Continued":[1]`); got != 2 || strings.Contains(f.metrics.String(), "TasksRetried") {
			t.Errorf("metrics: got %s, want Continued twice and no retry", f.metrics)
		}
	}, func(c *worker.Config) { c.Retries = 0 })
}

// A failure after two continued deliveries is the first try, with the shortest pause and retries left.
func TestContinuedDeliveriesAreNoTries(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	broken := true
	inBubble(t, script{"long": func(ctx context.Context, run task.Run) (string, error) {
		if _, err := long(9, ran)(ctx, run); err != nil || !broken {
			return "", err
		}
		broken = false
		return "", errors.New("once")
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		id, m := newTask("long")
		for range 2 {
			wantFailed(t, f.handle(t, m), m)
			f.queue.wantAfter(t, m, 1, 1)
			m = again(m)
		}
		wantFailed(t, f.handle(t, m), m)
		f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
		f.queue.wantAfter(t, m, 2, 3)
		wantFailed(t, f.handle(t, again(m)))
		f.wantStatus(t, id, checkpoint.Succeeded, "")
	}, func(c *worker.Config) { c.Retries = 1 })
}

// What no number of deliveries can hold is said to be too long at the last one, which gets its whole time. Its steps
// are kept: moved out of the dead-letter queue it goes on where it was.
//
// Case: self re-enqueue (a run that would need more deliveries than it gets)
func TestARunThatIsTooLongEndsWithItsOwnCode(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	inBubble(t, script{"long": long(22, ran)}, func(t *testing.T, f *fixture) {
		t.Helper()
		id, m := newTask("long")
		for range 4 {
			wantFailed(t, f.handle(t, m), m)
			f.wantStatus(t, id, checkpoint.Queued, "")
			f.queue.wantAfter(t, m, 1, 1)
			m = again(m)
		}
		began := time.Now()
		wantFailed(t, f.handle(t, m), m)
		if took := time.Since(began); took < 55*time.Second {
			t.Errorf("the last delivery ended after %v, want it to have its whole minute", took)
		}
		rec := f.wantStatus(t, id, checkpoint.Failed, task.CodeRunTooLong)
		f.queue.wantAfter(t, m, 0, 0)
		if len(rec.Steps) != 20 {
			t.Errorf("%d steps are kept, want 20", len(rec.Steps))
		}
		wantFailed(t, f.handle(t, again(m)), again(m)) // left to the dead-letter queue
		f.queue.wantAfter(t, m, 0, 0)

		redriven := message(id, "long")
		redriven.MessageId, redriven.ReceiptHandle = "m-redriven", "r-redriven"
		wantFailed(t, f.handle(t, redriven))
		f.wantStatus(t, id, checkpoint.Succeeded, "")
		if ran["step-1"] != 1 || ran["step-20"] != 1 || ran["step-21"] != 2 || ran["step-22"] != 1 {
			t.Errorf("got runs %v, want only step-21, which was cut off, to run twice", ran)
		}
	})
}

// A handler may also ask by itself for the next delivery.
func TestAHandlerMayContinueByItself(t *testing.T) {
	t.Parallel()
	ask := func(context.Context, task.Run) (string, error) {
		return "", fmt.Errorf("not yet: %w", task.Continue())
	}
	for name, tt := range map[string]struct {
		receive func(events.SQSMessage) events.SQSMessage
		status  checkpoint.Status
		code    string
		after   int32
	}{
		"with deliveries left": {func(m events.SQSMessage) events.SQSMessage { return m }, checkpoint.Queued, "", 1},
		"at the last one":      {fifth, checkpoint.Failed, task.CodeRunTooLong, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, script{"ask": ask})
			id, m := newTask("ask")
			m = tt.receive(m)
			wantFailed(t, f.handle(t, m), m)
			f.wantStatus(t, id, tt.status, tt.code)
			f.queue.wantAfter(t, m, tt.after, tt.after)
		})
	}
}

// An attempt that has committed nothing is not handed back early, however little time it has: it would never get any further.
func TestAnAttemptWithoutProgressIsATry(t *testing.T) {
	t.Parallel()
	inBubble(t, script{"slow": func(ctx context.Context, run task.Run) (string, error) {
		_ = sleep(ctx, 50*time.Second)
		return task.Step(ctx, run, "slow", func(ctx context.Context, _ *task.Effects) (string, error) {
			return "", sleep(ctx, 50*time.Second)
		})
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		id, m := newTask("slow")
		wantFailed(t, f.handle(t, m), m)
		f.wantStatus(t, id, checkpoint.Retrying, task.CodeDeadline)
		last := fifth(m)
		wantFailed(t, f.handle(t, last), last)
		f.wantStatus(t, id, checkpoint.Failed, task.CodeDeadline)
	})
}

// A step that takes most of an invocation is not begun when another of its kind would be cut off.
func TestAStepIsNotBegunThatWouldBeCutOff(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	inBubble(t, script{"two": func(ctx context.Context, run task.Run) (string, error) {
		for _, name := range []string{"one", "two"} {
			if _, err := task.Step(ctx, run, name, func(ctx context.Context, _ *task.Effects) (string, error) {
				ran[name]++
				return "", sleep(ctx, 35*time.Second)
			}); err != nil {
				return "", err
			}
		}
		_ = sleep(ctx, 20*time.Second) // whatever the handler still does, its result is committed
		return "done", nil
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		id, m := newTask("two")
		wantFailed(t, f.handle(t, m), m)
		f.wantStatus(t, id, checkpoint.Queued, "")
		wantFailed(t, f.handle(t, again(m)))
		f.wantStatus(t, id, checkpoint.Succeeded, "")
		if ran["one"] != 1 || ran["two"] != 1 {
			t.Errorf("got runs %v, want one each", ran)
		}
	})
}

// A step may say only at its end that it was the last: its output is the result, in one transaction with the success.
func TestAStepThatFinishesIsTheLast(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"finish": func(ctx context.Context, run task.Run) (string, error) {
		for i := range 3 {
			if _, err := task.Step(ctx, run, fmt.Sprint("look-", i), func(_ context.Context, fx *task.Effects) (string, error) {
				if i == 2 {
					fx.Finish()
				}
				return fmt.Sprint("found ", i), nil
			}); err != nil {
				return "", err
			}
		}
		_, err := task.Step(ctx, run, "more", func(context.Context, *task.Effects) (string, error) { return "", nil })
		if err == nil {
			t.Error("a step after the last one was accepted")
		}
		return "", err
	}})
	id, m := newTask("finish")
	wantFailed(t, f.handle(t, m))
	rec := f.wantStatus(t, id, checkpoint.Succeeded, "")
	if got := f.result(t, id); got != `"found 2"` || len(rec.Steps) != 3 {
		t.Errorf("got result %s after %d steps, want \"found 2\" after 3", got, len(rec.Steps))
	}
}

// Tokens stand with each step, and add up in the record over all attempts; those of a step that was not committed do not count.
func TestTokensAddUp(t *testing.T) {
	t.Parallel()
	dieIn := "three"
	var before []task.Tokens
	f := setUp(t, script{"count": func(ctx context.Context, run task.Run) (string, error) {
		for i, name := range []string{"one", "two", "three"} {
			if _, err := task.Step(ctx, run, name, func(_ context.Context, fx *task.Effects) (string, error) {
				before = append(before, run.Tokens())
				fx.UseTokens(100*(i+1), i)
				fx.UseTokens(1, -7)
				if name == dieIn {
					panic("killed")
				}
				return name, nil
			}); err != nil {
				return "", err
			}
		}
		return "", nil
	}})
	id, m := newTask("count")
	wantFailed(t, f.handle(t, m), m)
	if got, want := f.record(t, id).Tokens, (task.Tokens{Input: 302, Output: 1}); got != want {
		t.Errorf("after two steps the record says %+v, want %+v", got, want)
	}
	dieIn = ""
	wantFailed(t, f.handle(t, again(m)))
	rec := f.record(t, id)
	if want := (task.Tokens{Input: 603, Output: 3}); rec.Tokens != want {
		t.Errorf("the record says %+v, want %+v", rec.Tokens, want)
	}
	cp, err := f.store.Checkpoint(t.Context(), id.Thread(), rec.Steps[2].N)
	if want := (task.Tokens{Input: 301, Output: 2}); err != nil || cp.Tokens != want {
		t.Errorf("step three says %+v (%v), want %+v", cp.Tokens, err, want)
	}
	if got, want := fmt.Sprint(before), "[{0 0} {101 0} {302 1} {302 1}]"; got != want {
		t.Errorf("the steps saw %s, want %s", got, want)
	}
	for _, want := range []string{`"TokensIn":[302]`, `"TokensOut":[1]`, `"TokensIn":[301]`, `"TokensOut":[2]`} {
		if !strings.Contains(f.metrics.String(), want) {
			t.Errorf("no %s in the metrics:\n%s", want, f.metrics)
		}
	}
}

// A step that runs again because its ticket has changed has cost both times.
func TestTokensOfAStepThatRanTwice(t *testing.T) {
	t.Parallel()
	runs := int64(0)
	f := setUp(t, script{"twice": func(ctx context.Context, run task.Run) (string, error) {
		return task.LastStep(ctx, run, "twice", func(_ context.Context, fx *task.Effects) (string, error) {
			runs++
			fx.UseTokens(10, 1)
			fx.SetTicket(task.Ticket{ID: "TK-1", Status: "open", Version: 3 - runs}) // only 1 can be the first version
			return "", nil
		})
	}})
	id, m := newTask("twice")
	wantFailed(t, f.handle(t, m))
	if got, want := f.record(t, id).Tokens, (task.Tokens{Input: 20, Output: 2}); runs != 2 || got != want {
		t.Errorf("after %d runs the record says %+v, want %+v after 2", runs, got, want)
	}
}

// A failure that the task had before is over when its run goes on.
func TestAContinuedTaskHasNoError(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"later": func(_ context.Context, run task.Run) (string, error) {
		if run.Attempt() == 1 {
			return "", errors.New("once")
		}
		return "", task.Continue()
	}})
	id, m := newTask("later")
	wantFailed(t, f.handle(t, m), m)
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
	wantFailed(t, f.handle(t, again(m)), m)
	f.wantStatus(t, id, checkpoint.Queued, "")
}

// A handler that takes no notice of being told to stop cannot end its task without the steps that are missing.
func TestAHandlerCannotIgnoreThatItsTimeIsUp(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	inBubble(t, script{"careless": func(ctx context.Context, run task.Run) (string, error) {
		_, _ = long(9, ran)(ctx, run)
		return "done", nil
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		id, m := newTask("careless")
		for range 2 {
			wantFailed(t, f.handle(t, m), m)
			f.wantStatus(t, id, checkpoint.Queued, "")
			m = again(m)
		}
		wantFailed(t, f.handle(t, m))
		if rec := f.wantStatus(t, id, checkpoint.Succeeded, ""); len(rec.Steps) != 10 {
			t.Errorf("got %d steps, want all 10", len(rec.Steps))
		}
	})
}
