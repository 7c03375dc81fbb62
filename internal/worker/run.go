package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// run is one attempt at a task as its handler sees it; see [task.Run].
type run struct {
	w       *Worker
	d       *delivery
	id      task.ID
	attempt int
	began   time.Time
	turns   []task.Turn

	// executing guards against steps that are run side by side: their order would not be the same at the next attempt.
	executing sync.Mutex

	mu       sync.Mutex // guards what settle reads while an abandoned handler may still be running
	record   checkpoint.Record
	newest   uint64        // checkpoint of the thread, as far as known
	step     string        // begun last
	resumed  int           // steps that earlier attempts have committed
	executed int           // steps that this attempt has passed, read back or run
	longest  time.Duration // of the steps that this attempt has run
	broken   error         // after which nothing may take effect any more
}

// mostTurns is how many of the thread's newest results a handler gets.
const mostTurns = 10

func newRun(w *Worker, c claimed, d *delivery) *run {
	r := &run{w: w, d: d, id: d.message.ID, attempt: len(c.record.Attempts), began: time.Now(), record: c.record, resumed: len(c.record.Steps)}
	if len(c.latest) > 0 {
		r.newest = c.latest[0].N
	}
	for _, cp := range c.latest {
		if cp.Last && len(r.turns) < mostTurns {
			r.turns = append([]task.Turn{{TaskID: cp.TaskID, Task: cp.Task, Data: cp.Data}}, r.turns...)
		}
	}
	return r
}

func (r *run) ID() task.ID        { return r.id }
func (r *run) Attempt() int       { return r.attempt }
func (r *run) Turns() []task.Turn { return r.turns }

// Tokens is what the task has used in its committed steps.
func (r *run) Tokens() task.Tokens {
	rec, _ := r.state()
	return rec.Tokens
}

// state is the record as the last commit left it, and the step that was begun last.
func (r *run) state() (checkpoint.Record, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record, r.step
}

const (
	maxStepName = 100
	// mostTicketTries bounds how often a step runs again because its ticket was changed meanwhile.
	mostTicketTries = 10
)

// Execute reads a committed step back, or runs it and commits it.
func (r *run) Execute(ctx context.Context, step task.StepFunc) (jsontext.Value, error) {
	return r.execute(ctx, step, r.d.receives < r.w.MaxReceiveCount)
}

// execute is Execute; mayContinue: the step may as well be left to the next delivery.
func (r *run) execute(ctx context.Context, step task.StepFunc, mayContinue bool) (jsontext.Value, error) {
	if !r.executing.TryLock() {
		return nil, r.fail(task.Failf(task.CodeStepsChanged, "step %q was begun inside or beside another step", step.Name))
	}
	defer r.executing.Unlock()
	prior, err := r.begin(step)
	if err != nil {
		return nil, r.fail(err)
	}
	if prior != nil {
		cp, err := r.w.Store.Checkpoint(ctx, r.id.Thread(), prior.N)
		if err != nil {
			return nil, r.fail(fmt.Errorf("read step %q back: %w", step.Name, err))
		}
		return cp.Data, nil
	}
	if mayContinue && r.short(time.Now()) {
		return nil, r.fail(task.Continue())
	}
	var spent task.Tokens
	for try := 1; ; try++ {
		data, err := r.do(ctx, step, &spent)
		if !errors.Is(err, checkpoint.ErrTicketChanged) {
			return data, err
		}
		if try == mostTicketTries {
			return nil, task.WithCode(task.CodeTicketConflict, err)
		}
	}
}

// begin checks that the step is the one to come, and finds it if it has been committed.
func (r *run) begin(step task.StepFunc) (prior *checkpoint.Step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return nil, r.broken
	}
	r.step = step.Name
	switch {
	case step.Name == "" || len(step.Name) > maxStepName:
		return nil, task.Failf(task.CodeStepsChanged, "a step's name must be 1 to %d bytes long", maxStepName)
	case r.record.Status == checkpoint.Succeeded:
		return nil, task.Failf(task.CodeStepsChanged, "step %q comes after the last step", step.Name)
	}
	r.executed++
	if r.executed <= r.resumed {
		if have := r.record.Steps[r.executed-1]; have.Name != step.Name {
			return nil, task.Failf(task.CodeStepsChanged,
				"step %d is %q now and was %q when it was committed; keep the steps of tasks that are under way", r.executed, step.Name, have.Name)
		}
		return &r.record.Steps[r.executed-1], nil
	}
	for _, have := range r.record.Steps {
		if have.Name == step.Name {
			return nil, task.Failf(task.CodeStepsChanged, "step %q comes twice; give each step a name of its own", step.Name)
		}
	}
	return nil, nil //nolint:nilnil // no error, and no prior step
}

// short reports whether another step had better be left to the next delivery, which has the whole time again: less is left
// than the longest step took, or than a quarter. An attempt that has not got any further goes on trying.
func (r *run) short(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := r.d.deadline.Add(-r.d.margin)
	return len(r.record.Steps) > r.resumed && ends.Sub(now) < max(r.longest, ends.Sub(r.began)/4)
}

// progressed reports whether this attempt has committed a step.
func (r *run) progressed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.record.Steps) > r.resumed
}

// do runs a step and commits it. spent is what earlier runs of the step have used whose outcome came to nothing.
func (r *run) do(ctx context.Context, step task.StepFunc, spent *task.Tokens) (jsontext.Value, error) {
	effects := task.NewEffects(task.EffectKey(r.id, step.Name))
	began := time.Now()
	data, err := step.Do(ctx, effects)
	if err != nil {
		return nil, err
	}
	*spent = spent.Plus(effects.Tokens())
	took := time.Since(began)
	rec, _ := r.state()
	// The step is done and may have cost money: its commit gets a little more time than the handler.
	ctx, cancel := r.d.committing(ctx)
	defer cancel()
	done, err := r.w.Store.Commit(ctx, checkpoint.Commit{
		Record: rec, Newest: r.newest, Step: step.Name, Data: data, Last: step.Last || effects.Finished(),
		Duration: took, Tokens: *spent, Ticket: effects.Ticket(),
	})
	r.w.Metrics.Time(telemetry.StepDuration, r.d.taskType(), took)
	if done.Conflicts > 0 {
		r.w.Metrics.Add(telemetry.Conflicts, r.d.taskType(), float64(done.Conflicts))
	}
	switch {
	case errors.Is(err, checkpoint.ErrTooLarge):
		return nil, task.Permanent(task.WithCode(task.CodeStateTooLarge, err))
	case errors.Is(err, checkpoint.ErrTicketChanged):
		return nil, err
	case err != nil:
		// Not ours any more, or nobody knows whether it took effect: the next delivery does.
		return nil, r.fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record, r.newest, r.longest = done.Record, done.N, max(r.longest, time.Since(began))
	r.w.countTokens(r.d, *spent)
	return data, nil
}

// fail keeps an error that no handler can make good by ignoring it.
func (r *run) fail(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = err
	}
	return r.broken
}

// lastStep is the step that commits what a handler without a last step returns; of another name when the handler has such a
// step itself.
func lastStep(rec checkpoint.Record) string {
	name := "result"
	for slices.ContainsFunc(rec.Steps, func(s checkpoint.Step) bool { return s.Name == name }) {
		name += "'"
	}
	return name
}

// finish is called with what the handler returned, and makes sure that a nil error means a committed result.
func (r *run) finish(ctx context.Context, out jsontext.Value, err error) error {
	rec, _ := r.state()
	switch {
	case r.isBroken() != nil:
		return r.isBroken()
	case rec.Status == checkpoint.Succeeded:
		return nil // also when the handler fails after its last step: the result stands
	case err != nil:
		return err
	case r.skipped():
		return task.Failf(task.CodeStepsChanged, "the handler is done after %d steps, but %d had been committed; keep the steps of tasks that are under way", r.executed, r.resumed)
	}
	// Its work is done: only the commit is left.
	_, err = r.execute(ctx, task.StepFunc{Name: lastStep(rec), Last: true, Do: func(context.Context, *task.Effects) (jsontext.Value, error) {
		return out, nil
	}}, false)
	return err
}

func (w *Worker) countTokens(d *delivery, used task.Tokens) {
	if used != (task.Tokens{}) {
		w.Metrics.Add(telemetry.TokensIn, d.taskType(), float64(used.Input))
		w.Metrics.Add(telemetry.TokensOut, d.taskType(), float64(used.Output))
	}
}

func (r *run) isBroken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

func (r *run) skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executed < r.resumed
}
