package drill_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// full is the size that the disasters had. Every run of the tests has them at a tenth.
var full = flag.Bool("disasters", false, "let the disasters of others happen in their whole size")

func size(n int) int {
	if *full {
		return n
	}
	return n / 10
}

// Others have been here: 4,384 uploads, a batch size of 50, a timeout that two thirds of them ran into, a random name for
// each start, and 14,727 runs. Here, as many tasks start a run outside and then take longer than the function has, some of
// them deaf to their context.
func TestTwoThirdsRunIntoTheTimeout(t *testing.T) {
	t.Parallel()
	tasks := size(4384)
	outside := newTool()
	p := newPlant(t, startRun(outside), 4*time.Second, 50)
	ids := p.send(t, tasks, func(i int, id task.ID) string {
		return fmt.Sprintf(`{"task":"start_run","task_id":%q,"slow":%v,"deaf":%v}`, id, i%3 != 0, i%6 == 1)
	})
	p.drain(t)
	slow := tasks - (tasks+2)/3
	t.Logf("%d tasks, %d of which ran into the timeout: %d deliveries in %d invocations, %d of which failed; %d starts under %d effect keys, %d runs",
		tasks, slow, p.deliveries.Load(), p.invocations.Load(), p.failed.Load(), outside.naive, len(outside.calls), len(outside.answers))
	if len(outside.answers) != tasks {
		t.Errorf("%d tasks started %d runs, want one each", tasks, len(outside.answers))
	}
	if outside.naive < tasks+slow {
		t.Errorf("there were %d starts, want %d or more: one, and one more for each task that ran into the timeout", outside.naive, tasks+slow)
	}
	// A busy machine may starve some.
	if failed, all := p.failed.Load(), p.invocations.Load(); failed*3 > all {
		t.Errorf("%d of %d invocations failed, want none: what is slow is handed back before the deadline", failed, all)
	}
	p.results(t, ids, outside)
}

type start struct {
	Slow bool `json:"slow"`
	Deaf bool `json:"deaf"`
}

// startRun starts a run and, if it is slow, does not live to see it started the first time.
func startRun(outside *tool) task.Type {
	return task.Definition[start, string]{Name: "start_run", Run: func(ctx context.Context, run task.Run, in start) (string, error) {
		return task.LastStep(ctx, run, "start", func(ctx context.Context, effects *task.Effects) (string, error) {
			answer, times := outside.call(effects.Key())
			if in.Slow && times == 1 {
				if in.Deaf {
					<-processOf(ctx).ctx.Done()
				}
				<-ctx.Done()
				return "", ctx.Err()
			}
			return answer, nil
		})
	}}.Type()
}

// Others have been here too: 209 crashes between an outside call and its checkpoint, and 209 repeated effects.
func TestCrashesBetweenCallAndCheckpoint(t *testing.T) {
	t.Parallel()
	tasks := size(209)
	outside := newTool()
	p := newPlant(t, task.Definition[struct{}, string]{Name: "charge", Run: func(ctx context.Context, run task.Run, _ struct{}) (string, error) {
		return task.LastStep(ctx, run, "charge", func(ctx context.Context, effects *task.Effects) (string, error) {
			answer, times := outside.call(effects.Key())
			if times == 1 {
				processOf(ctx).die()
			}
			return answer, nil
		})
	}}.Type(), 2*time.Second, 1)
	ids := p.send(t, tasks, func(_ int, id task.ID) string { return fmt.Sprintf(`{"task":"charge","task_id":%q}`, id) })
	p.drain(t)
	repeated := len(outside.answers) - tasks
	t.Logf("%d crashes between call and checkpoint: %d calls under %d effect keys, %d repeated effects", p.failed.Load(), outside.naive, len(outside.calls), repeated)
	// On a busy machine an invocation's time may run out besides, and a call be made again for it.
	starved := int(p.failed.Load()) - tasks
	if extra := outside.naive - 2*tasks; starved < 0 || extra < 0 || extra > starved {
		t.Errorf("%d invocations failed and %d calls were made, want %d and twice as many", p.failed.Load(), outside.naive, tasks)
	}
	if repeated != 0 || len(outside.calls) != tasks {
		t.Errorf("%d effects under %d keys, want %d of both", len(outside.answers), len(outside.calls), tasks)
	}
	p.results(t, ids, outside)
}

// results checks that each task has one checkpoint, with the answer that the outside gave under its key, and succeeded.
func (p *plant) results(t *testing.T, ids []task.ID, outside *tool) {
	t.Helper()
	for _, id := range ids {
		r, err := p.store.Record(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != checkpoint.Succeeded || len(r.Steps) != 1 || len(r.Attempts) < outside.calls[task.EffectKey(id, r.Steps[0].Name)] {
			t.Errorf("task %s is %s with %d steps after %d attempts (%v)", id, r.Status, len(r.Steps), len(r.Attempts), r.Error)
			continue
		}
		cp, err := p.store.Checkpoint(t.Context(), id.Thread(), r.ResultN)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if want := outside.answers[task.EffectKey(id, cp.Step)]; json.Unmarshal(cp.Data, &got) != nil || got != want {
			t.Errorf("task %s has the result %s, and the outside answered %s", id, cp.Data, want)
		}
	}
}
