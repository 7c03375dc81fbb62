package drill

import (
	"regexp"
	"slices"
	"strconv"
	"time"

	"agentworker/internal/agent"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/task"
)

// judgeSteps: each step of a job has one checkpoint, which holds what one of its calls answered; what later steps built on
// is what the earlier ones committed; and no call was made again unless the one before was interrupted.
func (a *account) judgeSteps(j *job, r checkpoint.Record) {
	var names []string
	for _, s := range r.Steps {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, j.steps) {
		if j.poison == "" && r.Status == checkpoint.Succeeded {
			a.doubled("task %s committed the steps %q, want %q", r.TaskID, names, j.steps)
		} else {
			a.broken("task %s committed the steps %q, want %q", r.TaskID, names, j.steps)
		}
	}
	var before []int64
	for _, s := range r.Steps {
		cp, found := a.checkpoint(r.TaskID.Thread(), s.N)
		if !found || cp.TaskID != r.TaskID || cp.Step != s.Name {
			a.lost("step %q of task %s has checkpoint %d, which is of %q of task %s", s.Name, r.TaskID, s.N, cp.Step, cp.TaskID)
			continue
		}
		if cp.Task == agent.UpdateTicket {
			continue
		}
		outcome := mentioned(cp)
		if len(outcome) == 0 || !slices.Equal(outcome[:len(outcome)-1], before) {
			a.doubled("step %q of task %s builds on calls %v, and %v were committed", s.Name, r.TaskID, outcome, before)
			continue
		}
		own := outcome[len(outcome)-1]
		before = append(before, own)
		a.judgeCalls(r, s.Name, own, cp.UpdatedAt)
	}
}

func (a *account) checkpoint(thread string, n uint64) (checkpoint.Checkpoint, bool) {
	list := a.checkpoints[thread]
	at, found := slices.BinarySearchFunc(list, n, func(c checkpoint.Checkpoint, n uint64) int { return int(c.N) - int(n) }) //nolint:gosec // small numbers
	if !found {
		return checkpoint.Checkpoint{}, false
	}
	return list[at], true
}

var callNumber = regexp.MustCompile(`call#([0-9]+)`)

// mentioned are the calls that a step's output names, its own last.
func mentioned(c checkpoint.Checkpoint) []int64 {
	var calls []int64
	for _, m := range callNumber.FindAllSubmatch(c.Data, -1) {
		n, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits
		calls = append(calls, n)
	}
	return calls
}

// judgeCalls looks at the calls of one committed step. committed is the one whose answer its checkpoint holds.
func (a *account) judgeCalls(r checkpoint.Record, step string, committed int64, at time.Time) {
	key := task.EffectKey(r.TaskID, step)
	calls := a.calls[key]
	if !slices.ContainsFunc(calls, func(c ledger.Call) bool { return c.N == committed }) {
		a.broken("step %q of task %s holds the answer to call %d, which was not made under its key", step, r.TaskID, committed)
	}
	for i, c := range calls {
		until := at
		if i < len(calls)-1 {
			until = calls[i+1].At
		}
		interrupted := a.interrupted(r, c, until)
		if interrupted {
			a.Interrupted++
		}
		if i < len(calls)-1 {
			a.Repeated++
			if !interrupted {
				a.doubled("call %d of step %q of task %s, made by %s at %s, was made again by %s at %s although nothing came between it and its commit%s",
					c.N, step, r.TaskID, c.Process, clock(c.At), calls[i+1].Process, clock(calls[i+1].At), a.story(r))
			}
		}
	}
}

// interrupted tells whether something went wrong between a call and the time given: a fault at its process or at its task's
// requests, or its attempt failed and said so.
func (a *account) interrupted(r checkpoint.Record, c ledger.Call, until time.Time) bool {
	if c.Fault != "" || a.hit(c.Process, r.TaskID.Thread(), c.At, until) || a.stopped(c.Process, c.At) {
		return true
	}
	attempt := -1
	for i, claim := range a.claims[string(r.TaskID)] {
		if claim.process == c.Process && claim.at.Before(c.At) {
			attempt = i
		}
	}
	if attempt < 0 || attempt >= len(r.Attempts) {
		return false
	}
	line := r.Attempts[attempt]
	return line.Error != nil && !line.EndedAt.After(until)
}
