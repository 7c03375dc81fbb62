package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// A worker that dies (here: panics) after some steps leaves them behind: the next attempt reads them back, and the step
// that was not committed runs again under the same effect key.
//
// Case: side effect twice (the effect key stays the same)
func TestCommittedStepsAreNotRunAgain(t *testing.T) {
	t.Parallel()
	var ran []string
	var keys []string
	dieIn := "three"
	f := setUp(t, script{"steps": func(ctx context.Context, run task.Run) (string, error) {
		out := ""
		for _, name := range []string{"one", "two", "three"} {
			s, err := task.Step(ctx, run, name, func(_ context.Context, fx *task.Effects) (string, error) {
				ran = append(ran, name)
				keys = append(keys, fx.Key())
				if name == dieIn {
					panic("killed")
				}
				return fmt.Sprint(name, "@", run.Attempt()), nil
			})
			if err != nil {
				return "", err
			}
			out += s + " "
		}
		return out, nil
	}})
	id, m := newTask("steps")
	wantFailed(t, f.handle(t, m), m)
	if rec := f.wantStatus(t, id, checkpoint.Retrying, task.CodePanic); rec.Step != "three" || rec.Attempts[0].Step != "three" {
		t.Errorf("the attempt ended at step %q, want three", rec.Step)
	}
	dieIn = ""
	wantFailed(t, f.handle(t, again(m)))
	if want := []string{"one", "two", "three", "three"}; !slices.Equal(ran, want) {
		t.Errorf("steps ran as %v, want %v", ran, want)
	}
	if keys[2] != keys[3] || keys[0] == keys[1] || keys[2] != string(id)+"/three" {
		t.Errorf("effect keys are %v, want the same one for a step at every attempt", keys)
	}
	if got := f.result(t, id); got != `"one@1 two@1 three@2 "` {
		t.Errorf("result is %s", got)
	}
	rec := f.record(t, id)
	if len(rec.Steps) != 4 || len(rec.Attempts) != 2 {
		t.Errorf("%d steps in %d attempts, want 4 (with the result) in 2", len(rec.Steps), len(rec.Attempts))
	}
}

func TestAChangedListOfStepsFailsTheTask(t *testing.T) {
	t.Parallel()
	steps := func(names ...string) func(context.Context, task.Run) (string, error) {
		return func(ctx context.Context, run task.Run) (string, error) {
			for _, name := range names {
				if _, err := step(ctx, run, name, new(atomic.Int64)); err != nil && name != "careless" {
					return "", err
				}
			}
			return "", nil
		}
	}
	failing := func(before func(context.Context, task.Run) (string, error)) func(context.Context, task.Run) (string, error) {
		return func(ctx context.Context, run task.Run) (string, error) {
			out, err := before(ctx, run)
			return out, errors.Join(err, errors.New("once"))
		}
	}
	for name, second := range map[string]func(context.Context, task.Run) (string, error){
		"renamed": steps("one", "2"), "swapped": steps("two", "one"), "left out": steps("one"), "one added before": steps("zero", "one", "two"),
		"error ignored": steps("careless", "one"),
		"error hidden": func(ctx context.Context, run task.Run) (string, error) {
			_, err := step(ctx, run, "other", new(atomic.Int64))
			return "", fmt.Errorf("something: %v", err) //nolint:errorlint // hides what it wraps
		},
		"same name twice": func(ctx context.Context, run task.Run) (string, error) {
			return steps("one", "two", "three", "three")(ctx, run)
		},
		"after the last": func(ctx context.Context, run task.Run) (string, error) {
			if _, err := steps("one", "two")(ctx, run); err != nil {
				return "", err
			}
			if _, err := step(ctx, run, "", new(atomic.Int64)); err == nil {
				t.Error("a step without a name was accepted")
			}
			return "", nil
		},
		"a step within a step": func(ctx context.Context, run task.Run) (string, error) {
			if _, err := steps("one", "two")(ctx, run); err != nil {
				return "", err
			}
			return task.Step(ctx, run, "outer", func(ctx context.Context, _ *task.Effects) (string, error) {
				return step(ctx, run, "inner", new(atomic.Int64))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, nil)
			do := script{"steps": failing(steps("one", "two"))}
			f.Tasks = registry(t, do)
			id, m := newTask("steps")
			wantFailed(t, f.handle(t, m), m)
			do["steps"] = second
			wantFailed(t, f.handle(t, again(m)), m)
			f.wantStatus(t, id, checkpoint.Failed, task.CodeStepsChanged)
		})
	}
}

func registry(t *testing.T, do script) *task.Registry {
	t.Helper()
	types, err := task.NewRegistry(testType(do))
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func TestNothingComesAfterTheLastStep(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"last": func(ctx context.Context, run task.Run) (string, error) {
		if _, err := task.LastStep(ctx, run, "last", func(context.Context, *task.Effects) (string, error) { return "result", nil }); err != nil {
			return "", err
		}
		if _, err := step(ctx, run, "more", new(atomic.Int64)); err == nil {
			t.Error("a step after the last one was accepted")
		}
		return "", errors.New("after the last step nothing can fail")
	}})
	id, m := newTask("last")
	wantFailed(t, f.handle(t, m)) // the result stands
	f.wantStatus(t, id, checkpoint.Succeeded, "")
	if got := f.result(t, id); got != `"result"` {
		t.Errorf("result is %s", got)
	}
}

// What a handler returns is committed as a step of its own, whose name must not get into the way of the handler's.
func TestAStepMayHaveAnyName(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"named": func(ctx context.Context, run task.Run) (string, error) {
		for _, name := range []string{"result", "result'"} {
			if _, err := step(ctx, run, name, new(atomic.Int64)); err != nil {
				return "", err
			}
		}
		return "done", nil
	}})
	id, m := newTask("named")
	wantFailed(t, f.handle(t, m))
	if rec := f.wantStatus(t, id, checkpoint.Succeeded, ""); len(rec.Steps) != 3 || f.result(t, id) != `"done"` {
		t.Errorf("got %+v, want both steps and the result", rec.Steps)
	}
}

// Whether a commit without an answer took effect shows at the next delivery: until then no step may run, not even when the
// handler itself tries again.
func TestAStepOfUnknownOutcomeIsNotRunAgainByItsHandler(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	f := setUp(t, script{"insist": func(ctx context.Context, run task.Run) (string, error) {
		for range 3 {
			if out, err := step(ctx, run, "one", &runs); err == nil {
				return out, nil
			}
		}
		return "without it", nil
	}})
	id, m := newTask("insist")
	c := f.Config
	c.Store = &mute{Store: f.store}
	out, err := invoke(t.Context(), worker.New(c), eventOf(m))
	if err != nil || len(out.BatchItemFailures) != 1 {
		t.Errorf("the first delivery gave %v (%v), want the message to come back", out, err)
	}
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
	wantFailed(t, f.handle(t, again(m)))
	f.wantStatus(t, id, checkpoint.Succeeded, "")
	if got := f.result(t, id); runs.Load() != 1 || got != `"one"` {
		t.Errorf("%d runs, result %s, want one run and its outcome", runs.Load(), got)
	}
}

// A finished step that cannot be read for the moment ends the attempt, whatever its handler makes of that: it is neither
// missing nor another step.
func TestAStepThatCannotBeReadBackEndsTheAttempt(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	f := setUp(t, script{"insist": func(ctx context.Context, run task.Run) (string, error) {
		var out string
		var err error
		for range 2 {
			if out, err = step(ctx, run, "one", &runs); err == nil {
				break
			}
		}
		if run.Attempt() == 1 {
			return "", errors.New("once")
		}
		return out, err
	}})
	id, m := newTask("insist")
	wantFailed(t, f.handle(t, m), m)
	c := f.Config
	c.Store = &unreadable{f.store}
	if _, err := invoke(t.Context(), worker.New(c), eventOf(again(m))); err != nil {
		t.Fatal(err)
	}
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeFailed)
	wantFailed(t, f.handle(t, again(again(m))))
	f.wantStatus(t, id, checkpoint.Succeeded, "")
	if runs.Load() != 1 {
		t.Errorf("the step ran %d times, want once", runs.Load())
	}
}

// unreadable is a table that gives no single checkpoint.
type unreadable struct{ worker.Store }

func (unreadable) Checkpoint(context.Context, string, uint64) (checkpoint.Checkpoint, error) {
	return checkpoint.Checkpoint{}, errAway
}

// mute is a table whose first commit takes effect and has no answer.
type mute struct {
	worker.Store
	done atomic.Bool
}

func (m *mute) Commit(ctx context.Context, c checkpoint.Commit) (checkpoint.Committed, error) {
	done, err := m.Store.Commit(ctx, c)
	if err == nil && !m.done.Swap(true) {
		return checkpoint.Committed{}, errAway
	}
	return done, err
}

func TestAHandlerSeesTheNewestTurnsAndNotItsOwn(t *testing.T) {
	t.Parallel()
	var turns []task.Turn
	f := setUp(t, script{"look": func(_ context.Context, run task.Run) (string, error) {
		turns = run.Turns()
		return "", nil
	}})
	for i := range 12 {
		_, m := newTask(fmt.Sprint(i))
		wantFailed(t, f.handle(t, m))
	}
	_, m := newTask("look")
	wantFailed(t, f.handle(t, m))
	var got []string
	for _, turn := range turns {
		got = append(got, string(turn.Data))
	}
	if want := 10; len(got) != want || got[0] != `"done 2"` || got[9] != `"done 11"` {
		t.Errorf("turns are %v, want the newest %d, oldest first", got, want)
	}
}

// The ticket changes between a step's reading it and its commit: the step runs again on what is there now.
func TestAStepRunsAgainWhenItsTicketChanged(t *testing.T) {
	t.Parallel()
	var f *fixture
	var runs atomic.Int64
	ticket := func(meanwhile int64) func(ctx context.Context, run task.Run) (string, error) {
		return func(ctx context.Context, run task.Run) (string, error) {
			return task.LastStep(ctx, run, "update", func(ctx context.Context, fx *task.Effects) (string, error) {
				n := runs.Add(1)
				have, err := f.store.Ticket(ctx, "TK-1")
				if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
					return "", err
				}
				if n <= meanwhile { // somebody else
					_, other := newTask("ticket")
					if _, err := invoke(ctx, f, eventOf(other)); err != nil {
						return "", err
					}
				}
				fx.SetTicket(task.Ticket{ID: "TK-1", Status: fmt.Sprint(n), Version: have.Version + 1, UpdatedAt: time.Now()})
				return "", nil
			})
		}
	}
	f = setUp(t, script{"ticket": ticket(0), "contended": ticket(1), "hopeless": ticket(1 << 40)})
	id, m := newTask("contended")
	wantFailed(t, f.handle(t, m))
	f.wantStatus(t, id, checkpoint.Succeeded, "")
	if got, err := f.store.Ticket(t.Context(), "TK-1"); err != nil || got.Version != 2 {
		t.Errorf("ticket is %+v (%v), want version 2: the other one and this one", got, err)
	}
	id, m = newTask("hopeless")
	wantFailed(t, f.handle(t, m), m)
	f.wantStatus(t, id, checkpoint.Retrying, task.CodeTicketConflict)
}

// Case: oversize retried for ever
func TestTooLargeAnOutputFailsForGood(t *testing.T) {
	t.Parallel()
	f := setUp(t, script{"large": func(ctx context.Context, run task.Run) (string, error) {
		return task.Step(ctx, run, "large", func(context.Context, *task.Effects) (string, error) { return incompressible(5 << 20), nil })
	}})
	id, m := newTask("large")
	wantFailed(t, f.handle(t, m), m)
	f.wantStatus(t, id, checkpoint.Failed, task.CodeStateTooLarge)
	f.queue.wantAfter(t, m, 0, 0)
}
