package drill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/task"
)

// judgeThreads: checkpoints are numbered 1, 2, 3 …, each of a step of its own, and the result is the newest.
func (a *account) judgeThreads() {
	type step struct {
		id   task.ID
		name string
	}
	for thread, list := range a.checkpoints {
		seen := map[step]uint64{}
		for i, c := range list {
			if c.N != uint64(i+1) {
				a.broken("thread %s has checkpoint %d where %d belongs", thread, c.N, i+1)
				break
			}
			s := step{c.TaskID, c.Step}
			if first, twice := seen[s]; twice {
				a.doubled("step %q of task %s has the checkpoints %d and %d", s.name, s.id, first, c.N)
			}
			seen[s] = c.N
		}
		a.judgeResult(thread, list)
	}
}

func (a *account) judgeResult(thread string, list []checkpoint.Checkpoint) {
	at := slices.IndexFunc(list, func(c checkpoint.Checkpoint) bool { return c.Last })
	result, err := a.store().Result(context.Background(), thread)
	switch {
	case at < 0 && errors.Is(err, checkpoint.ErrNotFound):
		return
	case err != nil:
		a.broken("the result of thread %s cannot be read: %v", thread, err)
		return
	}
	for i, c := range list {
		if c.Last {
			at = i
		}
	}
	if newest := list[at]; result.N != newest.N || result.TaskID != newest.TaskID || string(result.Data) != string(newest.Data) {
		a.broken("the result of thread %s is that of checkpoint %d, and %d is its newest", thread, result.N, newest.N)
	}
}

// judgeTickets: each change of a ticket took effect once, in the order in which it was accepted.
func (a *account) judgeTickets(ctx context.Context) {
	changes, last := map[string]int64{}, map[string]*job{}
	newest := map[string]uint64{}
	for _, j := range a.jobs {
		if j.ticket == "" || j.poison != "" || len(a.records[j]) == 0 {
			continue
		}
		changes[j.ticket]++
		last[j.ticket] = j
		r := a.records[j][0]
		if r.Status != checkpoint.Succeeded {
			continue // told already
		}
		if r.ResultN <= newest[j.ticket] {
			a.broken("order: task %s changed ticket %s with checkpoint %d, after a later one with %d", r.TaskID, j.ticket, r.ResultN, newest[j.ticket])
		}
		newest[j.ticket] = r.ResultN
	}
	for id, want := range changes {
		t, err := a.store().Ticket(ctx, id)
		if err != nil {
			a.lost("ticket %s: %v", id, err)
			continue
		}
		if t.Version != want || !strings.Contains(last[id].body, `"status":"`+t.Status+`"`) {
			a.broken("ticket %s is %s with version %d, after %d changes, the last of which was %s", id, t.Status, t.Version, want, last[id].body)
		}
	}
}

// output notes how a worker's invocations and processes end, where they end badly.
func (d *drill) output(l lambda.Line) {
	if l.Stream != lambda.Platform || l.Function != d.stack.Worker.Name {
		return
	}
	if strings.Contains(l.Text, "\tStatus: ") || strings.Contains(l.Text, "ended while idle") {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ends = append(d.ends, l)
	}
}

// judgeProcesses: no worker process ends, and no invocation fails, unless it was made to. On a busy machine an invocation's
// time can run out by itself; but when it does wherever a step outlasts its attempt, nothing is handed back in time.
func (a *account) judgeProcesses(ends []lambda.Line) {
	late, tooLate := 0, 0
	for process, hits := range a.hits {
		if process != "" && slices.ContainsFunc(hits, func(i chaos.Injection) bool { return i.Kind == chaos.Late }) {
			late++
			if a.timeouts[process] {
				tooLate++
			}
		}
	}
	if tooLate*3 > late {
		a.broken("%d of %d processes with a step that outlasted its attempt ran into the function's timeout: nothing was handed back before", tooLate, late)
	}
	for _, l := range ends {
		if !timedOut(l) && !a.stoppedBefore(l) {
			a.broken("process %s failed by itself: %s", l.Process, l.Text)
		}
	}
}

func timedOut(l lambda.Line) bool { return strings.Contains(l.Text, "\tStatus: timeout") }

func (a *account) stoppedBefore(l lambda.Line) bool {
	return slices.ContainsFunc(a.hits[l.Process], func(i chaos.Injection) bool { return stops(i.Kind) && !i.At.After(l.Time) })
}

// judgeDelays: a task that asked for a pause came back after it, not before. Lost requests for the pause are made up for by
// the visibility timeout, and a duplicate can always come early, so that some may.
func (a *account) judgeDelays() {
	const pause = time.Minute / haste
	for _, j := range a.jobs {
		if !j.once || len(a.records[j]) == 0 {
			continue
		}
		lines := a.records[j][0].Attempts
		for i := 0; i < len(lines)-1; i++ {
			if e := lines[i].Error; e != nil && e.Code == "DRILL_ONCE" {
				a.Pauses++
				if lines[i+1].StartedAt.Sub(lines[i].EndedAt) < pause-500*time.Millisecond {
					a.Early++
				}
			}
		}
	}
	if a.Early*2 > a.Pauses {
		a.broken("%d of %d tasks that asked to be tried again after a pause came back too early", a.Early, a.Pauses)
	}
}
