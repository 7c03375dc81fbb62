// Package tasktest runs task handlers in memory, for their unit tests.
package tasktest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/task"
)

// Run is a [task.Run] that keeps what it commits in memory. It refuses what a worker refuses: a step of a
// name that was used before, a step after the last one, and, in a resumed attempt, steps that are
// not the committed ones in their order. All attempts of one task share what is
// committed. It is for one goroutine at a time, like the handler's own.
type Run struct {
	task    *state
	attempt int
	seen    []string // the attempt's steps so far
	ran     []string
}

// state is what outlives an attempt.
type state struct {
	mu        sync.Mutex
	id        task.ID
	turns     []task.Turn
	steps     []step
	keys      []string
	tickets   []task.Ticket
	tokens    task.Tokens
	commitErr error
	failing   string // the step that commitErr is kept for; "": the next
}

type step struct {
	name     string
	last     bool // as begun
	finished bool // by its effects
	data     jsontext.Value
}

// NewRun is the first attempt of a task, with turns as its thread's newest results, oldest first.
func NewRun(id task.ID, turns ...task.Turn) *Run {
	return &Run{task: &state{id: id, turns: turns}, attempt: 1}
}

// Resume is the next attempt: it reads committed steps back and runs the others.
func (r *Run) Resume() *Run { return &Run{task: r.task, attempt: r.attempt + 1} }

// FailCommit lets the next commit fail with err after its step has run, as a worker does that dies in between.
func (r *Run) FailCommit(err error) { r.FailCommitOf("", err) }

// FailCommitOf is [Run.FailCommit] for the step of a name.
func (r *Run) FailCommitOf(step string, err error) { r.task.failing, r.task.commitErr = step, err }

// ID is the task's id.
func (r *Run) ID() task.ID { return r.task.id }

// Attempt is 1, and one more at every [Run.Resume].
func (r *Run) Attempt() int { return r.attempt }

// Turns are those that [NewRun] was given.
func (r *Run) Turns() []task.Turn { return slices.Clone(r.task.turns) }

// Tokens are what the committed steps have used.
func (r *Run) Tokens() task.Tokens { return r.task.tokens }

// Ran are the steps that ran in this attempt, whether they succeeded or not; those read back are not among them.
func (r *Run) Ran() []string { return slices.Clone(r.ran) }

// Keys are the effect keys that steps of any attempt ran under, in order.
func (r *Run) Keys() []string { return slices.Clone(r.task.keys) }

// Tickets are the ticket changes that were committed, oldest first.
func (r *Run) Tickets() []task.Ticket { return slices.Clone(r.task.tickets) }

// Committed is the output of a committed step.
func (r *Run) Committed(name string) (jsontext.Value, bool) {
	for _, s := range r.task.steps {
		if s.name == name {
			return s.data.Clone(), true
		}
	}
	return nil, false
}

// Execute implements [task.Run].
func (r *Run) Execute(ctx context.Context, f task.StepFunc) (jsontext.Value, error) {
	if !r.task.mu.TryLock() {
		return nil, task.Permanent(fmt.Errorf("step %q was started while another one runs", f.Name))
	}
	defer r.task.mu.Unlock()

	n := len(r.seen)
	switch {
	case f.Name == "" || len(f.Name) > 100:
		return nil, task.Permanent(fmt.Errorf("step %q: its name must be 1 to 100 bytes long", f.Name))
	case slices.Contains(r.seen, f.Name):
		return nil, task.Permanent(fmt.Errorf("step %q was used before in this task", f.Name))
	case n > 0 && n <= len(r.task.steps) && (r.task.steps[n-1].last || r.task.steps[n-1].finished):
		return nil, task.Permanent(fmt.Errorf("step %q follows the last step %q", f.Name, r.seen[n-1]))
	}
	if n < len(r.task.steps) {
		committed := r.task.steps[n]
		if committed.name != f.Name || committed.last != f.Last {
			return nil, task.Failf(task.CodeStepsChanged, "step %d is %q (last: %t) now, but was committed as %q (last: %t)",
				n+1, f.Name, f.Last, committed.name, committed.last)
		}
		r.seen = append(r.seen, f.Name)
		return committed.data.Clone(), nil
	}
	return r.run(ctx, f)
}

func (r *Run) run(ctx context.Context, f task.StepFunc) (jsontext.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	effects := task.NewEffects(task.EffectKey(r.task.id, f.Name))
	r.ran = append(r.ran, f.Name)
	r.task.keys = append(r.task.keys, effects.Key())

	var data jsontext.Value
	err := task.Guard(func() (err error) {
		data, err = f.Do(ctx, effects)
		return err
	})
	if err == nil && (r.task.failing == "" || r.task.failing == f.Name) {
		err, r.task.commitErr = r.task.commitErr, nil
	}
	if err != nil {
		return nil, err
	}
	r.seen = append(r.seen, f.Name)
	r.task.steps = append(r.task.steps, step{f.Name, f.Last, effects.Finished(), data.Clone()})
	r.task.tokens = r.task.tokens.Plus(effects.Tokens())
	if t := effects.Ticket(); t != nil {
		r.task.tickets = append(r.task.tickets, *t)
	}
	return data, nil
}
