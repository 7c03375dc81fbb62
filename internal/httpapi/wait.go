package httpapi

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

const (
	paramWait = "wait"
	// maxWait leaves API Gateway, which waits 30 s for an answer, time to get one.
	// Source: Amazon API Gateway Developer Guide, "Quotas for configuring and running an HTTP API".
	maxWait = 25 * time.Second
	// waitReserve is left of the request's time when a wait ends, for the last look.
	waitReserve = 2 * time.Second

	// A quick task is seen to end soon after it has; pauses that double make up for it in a long wait.
	firstPause   = 25 * time.Millisecond
	longestPause = 2 * time.Second
)

// wait is how long the client would wait for the task to end; 0 when it does not say.
func (c *call) wait() (time.Duration, error) {
	params, err := c.query(paramWait)
	if err != nil {
		return 0, err
	}
	text, given := params[paramWait]
	if !given {
		return 0, nil
	}
	most := int(maxWait / time.Second)
	seconds, err := strconv.ParseUint(text, 10, 8)
	if err != nil || seconds > uint64(most) {
		return 0, task.FieldErrors{{Field: paramWait, Problem: fmt.Sprintf("must be a whole number from 0 to %d, in seconds", most)}}
	}
	return time.Duration(seconds) * time.Second, nil
}

// await reads the task's record until the task has ended, wait is over, or the client is gone, and gives it
// as it was last seen. Pauses grow, so that a long wait costs little more than a short one, and are
// never shorter than the task's own until its next try.
func (a *api) await(ctx context.Context, id task.ID, wait time.Duration) (checkpoint.Record, error) {
	until := time.Now().Add(wait)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-waitReserve).Before(until) {
		until = deadline.Add(-waitReserve)
	}
	pauses := backoff.ExponentialBackOff{
		InitialInterval: firstPause, Multiplier: 2, RandomizationFactor: 0.2, MaxInterval: longestPause,
	}
	pauses.Reset()
	for {
		record, err := a.look(ctx, id)
		left := time.Until(until)
		if err != nil || ended(record) || left <= 0 {
			return record, err
		}
		pause := max(pauses.NextBackOff(), record.NextRetryAt.Sub(a.Now()))
		if !sleep(ctx, min(pause, left)) {
			return record, nil
		}
	}
}

// look reads the record once.
func (a *api) look(ctx context.Context, id task.ID) (checkpoint.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	return a.Store.Record(ctx, id)
}

func ended(r checkpoint.Record) bool {
	return r.Status == checkpoint.Succeeded || r.Status == checkpoint.Failed
}

// sleep is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
