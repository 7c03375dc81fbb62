// Package load puts tasks through a deployment, a number of them at a time, and measures what becomes of them.
package load

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"agentworker/infra/agentctl/api"
)

// Options of a run.
type Options struct {
	Tasks       int           // how many, 1 or more
	Concurrency int           // how many of them are under way at a time, 1 or more
	Timeout     time.Duration // of one task, from its acceptance to its end
	Done        func(int)     // told after each task how many have ended; nil: nobody. Not called by two goroutines at once
}

// Submit queues the i-th task, counted from 0, and gives its id.
type Submit func(ctx context.Context, i int) (id string, err error)

// Wait gives a task when it has ended, or as it stands after the time at the latest.
type Wait func(ctx context.Context, id string, most time.Duration) (api.Task, error)

// Latency is in milliseconds; all zero when nothing was measured. A percentile is the smallest value that is not below
// that part of them.
type Latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// Report is what a run has shown.
type Report struct {
	Tasks       int  `json:"tasks"`
	Accepted    int  `json:"accepted"`
	Succeeded   int  `json:"succeeded"`
	Failed      int  `json:"failed"`    // also: not accepted, or not ended in time
	UnderWay    int  `json:"under_way"` // accepted, and neither ended nor given up when the run was interrupted
	Interrupted bool `json:"interrupted"`

	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"` // tasks that have succeeded

	Submit   Latency `json:"submit"`     // of the accepted ones, as the client sees it
	EndToEnd Latency `json:"end_to_end"` // from the submission to the last change of those that have succeeded, by their records

	// Reasons are the failures by reason: the code of the task's error, or of the API's refusal.
	Reasons map[string]int `json:"reasons"`
}

// Reasons that are no codes of a task or of the API.
const (
	NotEnded    = "NOT_ENDED_IN_TIME"
	Unreachable = "API_UNREACHABLE"
)

// Run submits the tasks and waits for each one's end. When ctx ends it reports what was done until then.
func Run(ctx context.Context, o Options, submit Submit, wait Wait) Report {
	r := &run{report: Report{Tasks: o.Tasks, Reasons: map[string]int{}}, done: o.Done}
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(o.Concurrency)
	for i := range o.Tasks {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if ctx.Err() == nil { // still, after the wait for its turn
				r.task(ctx, i, o.Timeout, submit, wait)
			}
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	return r.finish(time.Since(began), ctx.Err())
}

type run struct {
	mu             sync.Mutex
	report         Report
	ended          int
	submit, wholly []time.Duration
	done           func(int)
}

// task is the life of one task.
func (r *run) task(ctx context.Context, i int, timeout time.Duration, submit Submit, wait Wait) {
	began := time.Now()
	id, err := submit(ctx, i)
	took := time.Since(began)
	if err != nil {
		r.fail(ctx, err)
		return
	}
	r.accepted(took)
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		t, err := wait(waiting, id, api.MaxWait)
		switch {
		case ctx.Err() != nil:
			r.underWay()
			return
		case err != nil && errors.Is(waiting.Err(), context.DeadlineExceeded):
			r.count(func(rep *Report) { rep.Failed++; rep.Reasons[NotEnded]++ })
			return
		case err != nil:
			r.fail(ctx, err)
			return
		case t.Ended():
			r.end(t)
			return
		}
	}
}

func (r *run) accepted(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Accepted++
	r.submit = append(r.submit, took)
}

func (r *run) underWay() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.UnderWay++
}

func (r *run) end(t api.Task) {
	r.count(func(rep *Report) {
		if t.Status == api.Failed {
			reason := "FAILED"
			if t.Error != nil {
				reason = t.Error.Code
			}
			rep.Failed++
			rep.Reasons[reason]++
			return
		}
		rep.Succeeded++
		if t.SubmittedAt != nil && t.UpdatedAt != nil {
			r.wholly = append(r.wholly, t.UpdatedAt.Sub(*t.SubmittedAt))
		}
	})
}

// fail counts an error of the API, unless the run is being interrupted.
func (r *run) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	reason := Unreachable
	var problem *api.Problem
	if errors.As(err, &problem) {
		reason = problem.Name()
	}
	r.count(func(rep *Report) { rep.Failed++; rep.Reasons[reason]++ })
}

func (r *run) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
	r.ended++
	if r.done != nil {
		r.done(r.ended)
	}
}

func (r *run) finish(took time.Duration, interruption error) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.report
	rep.Interrupted = interruption != nil && r.ended < rep.Tasks
	rep.Seconds = took.Seconds()
	if took > 0 {
		rep.PerSecond = float64(rep.Succeeded) / took.Seconds()
	}
	rep.Submit, rep.EndToEnd = latency(r.submit), latency(r.wholly)
	return rep
}

func latency(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	at := func(part float64) float64 {
		i := int(math.Ceil(part*float64(len(all)))) - 1
		return float64(all[i]) / float64(time.Millisecond)
	}
	return Latency{Count: len(all), P50: at(.5), P90: at(.9), P99: at(.99), Max: at(1)}
}
