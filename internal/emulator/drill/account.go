package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/task"
)

// account is what is known when a drill is over, and what is wrong with it.
type account struct {
	*drill
	Report

	records     map[*job][]checkpoint.Record
	checkpoints map[string][]checkpoint.Checkpoint // by thread, in their order
	letters     map[*job]int                       // messages in a dead-letter queue
	calls       map[string][]ledger.Call           // by effect key, in their order
	hits        map[string][]chaos.Injection       // by process
	timeouts    map[string]bool                    // processes whose invocation's time ran out although nothing froze them
}

// account reads everything and judges it.
func (d *drill) account(ctx context.Context, ended bool) (*Report, error) {
	a := &account{
		drill:   d,
		Report:  Report{Seed: d.Seed, Plan: d.Chaos, Tasks: len(d.jobs), Retries: d.client.retries.Load(), Injections: map[chaos.Kind]int{}},
		records: map[*job][]checkpoint.Record{}, checkpoints: map[string][]checkpoint.Checkpoint{}, letters: map[*job]int{},
		calls: map[string][]ledger.Call{}, hits: map[string][]chaos.Injection{}, timeouts: map[string]bool{},
	}
	if !ended {
		a.broken("the drill did not come to an end: %d of %d tasks were accepted, and messages are left", d.client.accepted.Load(), len(d.jobs))
	}
	for _, c := range d.ledger.Calls() {
		a.calls[c.Key] = append(a.calls[c.Key], c)
		a.Calls++
	}
	d.mu.Lock()
	for _, i := range d.injections {
		a.Injections[i.Kind]++
		a.hits[i.Process] = append(a.hits[i.Process], i)
	}
	ends := slices.Clone(d.ends)
	d.mu.Unlock()

	for _, l := range ends {
		if timedOut(l) && !a.stoppedBefore(l) {
			a.timeouts[l.Process] = true
			a.TimedOut++
			// From here on it is as good as a fault.
			a.hits[l.Process] = append(a.hits[l.Process], chaos.Injection{Kind: chaos.Freeze, At: l.Time, Process: l.Process, What: "timeout"})
		}
	}

	if err := a.read(ctx); err != nil {
		return nil, err
	}
	for _, j := range d.jobs {
		a.judge(j)
	}
	a.judgeThreads()
	a.judgeTickets(ctx)
	a.judgeProcesses(ends)
	a.judgeDelays()
	if a.Planted > 0 && d.notified == 0 {
		a.broken("nobody was told of %d dead letters", a.Planted)
	}
	return &a.Report, nil
}

func (a *account) broken(format string, args ...any) {
	a.Violations = append(a.Violations, fmt.Sprintf(format, args...))
}

func (a *account) lost(format string, args ...any) {
	a.Lost++
	a.broken("lost: "+format, args...)
}

func (a *account) doubled(format string, args ...any) {
	a.Doubled++
	a.broken("doubled: "+format, args...)
}

// judge looks at one job: its record, its checkpoints, its calls.
func (a *account) judge(j *job) {
	if j.poison != "" {
		a.Planted++
	}
	records := a.records[j]
	switch len(records) {
	case 0:
		a.lost("%s (%s) has no record", j.name(), j.id)
		return
	case 1:
	default:
		a.doubled("%s has %d records, of tasks %s and %s", j.name(), len(records), records[0].TaskID, records[1].TaskID)
	}
	r := records[0]
	switch {
	case j.poison == "" && r.Status != checkpoint.Succeeded:
		a.lost("task %s (%s) is %s %s after %d attempts, with %d dead letters%s", r.TaskID, j.name(), r.Status, reason(r.Error), len(r.Attempts), a.letters[j], a.story(r))
	case j.poison == "":
		if a.letters[j] > 0 {
			a.broken("task %s succeeded and lies in a dead-letter queue", r.TaskID)
		}
	case r.Status != checkpoint.Failed || r.Error == nil || r.Error.Code != j.poison:
		a.lost("task %s (%s) is %s %s, and %s was planted", r.TaskID, j.name(), r.Status, reason(r.Error), j.poison)
	case a.letters[j] == 0:
		a.lost("task %s has failed and is in no dead-letter queue", r.TaskID)
	default:
		a.DeadLettered++
	}
	a.judgeAttempts(j, r)
	a.judgeSteps(j, r)
}

func reason(f *task.Failure) string {
	if f == nil {
		return "without a reason"
	}
	return fmt.Sprintf("(%s: %s)", f.Code, f.Message)
}

// judgeAttempts: one line per claim, and each tells how it ended unless its process was stopped.
func (a *account) judgeAttempts(j *job, r checkpoint.Record) {
	claims := a.claims[string(r.TaskID)]
	a.Attempts += len(claims)
	if len(r.Attempts) != len(claims) {
		a.broken("task %s was claimed %d times and its record has %d lines", r.TaskID, len(claims), len(r.Attempts))
		return
	}
	for i, line := range r.Attempts {
		c := claims[i]
		until := c.at.Add(a.stack.Worker.Timeout + 2*time.Second)
		switch {
		case line.EndedAt.IsZero():
			if !a.hit(c.process, r.TaskID.Thread(), c.at.Add(-time.Second), until) {
				a.broken("attempt %d of task %s by %s was never closed, and nothing was done to it", i+1, r.TaskID, c.process)
			}
		case line.Error == nil:
			if i < len(r.Attempts)-1 {
				a.doubled("attempt %d of task %s succeeded, and %d more were made", i+1, r.TaskID, len(r.Attempts)-1-i)
			}
		case ofTime(line.Error), line.Error.Code == j.poison, j.once && line.Error.Code == "DRILL_ONCE":
		case !a.hit(c.process, r.TaskID.Thread(), c.at.Add(-time.Second), until):
			a.broken("attempt %d of task %s failed %s, and nothing was done to it", i+1, r.TaskID, reason(line.Error))
		}
	}
}

// ofTime tells whether an attempt ended for want of time, as any may on a busy machine.
func ofTime(f *task.Failure) bool {
	switch f.Code {
	case task.CodeDeadline, task.CodeContinued, task.CodeInterrupted:
		return true
	}
	return strings.Contains(f.Message, context.DeadlineExceeded.Error())
}

// hit tells whether a fault struck a process in some time: it was stopped, or its requests for the thread or to the ledger
// were tampered with.
func (a *account) hit(process, thread string, from, to time.Time) bool {
	return slices.ContainsFunc(a.hits[process], func(i chaos.Injection) bool {
		return !i.At.Before(from) && !i.At.After(to) && (stops(i.Kind) || i.Thread == thread || i.Thread == "")
	})
}

// stopped tells whether a process had been stopped at some time. A call that was on its way can still arrive then, on a busy
// machine much later; no other does.
func (a *account) stopped(process string, at time.Time) bool {
	return slices.ContainsFunc(a.hits[process], func(i chaos.Injection) bool { return stops(i.Kind) && !i.At.After(at) })
}

// story is what happened to a task, for whoever wants to know why a promise was broken.
func (a *account) story(r checkpoint.Record) string {
	var lines []string
	for i, c := range a.claims[string(r.TaskID)] {
		line := fmt.Sprintf("%s attempt %d by %s", clock(c.at), i+1, c.process)
		if i < len(r.Attempts) {
			if e := r.Attempts[i].Error; e != nil {
				line += fmt.Sprintf(", ended %s %s", clock(r.Attempts[i].EndedAt), reason(e))
			}
		}
		lines = append(lines, line)
		for _, h := range a.hits[c.process] {
			if stops(h.Kind) || h.Task == string(r.TaskID) || h.Thread == r.TaskID.Thread() {
				lines = append(lines, fmt.Sprintf("%s %s at %s by %s", clock(h.At), h.Kind, h.What, h.Process))
			}
		}
	}
	slices.Sort(lines)
	return "\n    " + strings.Join(slices.Compact(lines), "\n    ")
}

// stops tells whether a fault ends what a process is doing.
func stops(k chaos.Kind) bool {
	switch k {
	case chaos.Kill, chaos.KillBeforeClaim, chaos.KillAfterClaim, chaos.KillMidStep, chaos.KillBeforeWrite, chaos.KillAfterWrite, chaos.KillSubmit, chaos.Freeze:
		return true
	}
	return false
}
