package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// getResult gives the thread's newest result as the whole body.
func (a *api) getResult(ctx context.Context, c *call) (answer, error) {
	thread := c.PathValue("thread_id")
	if err := task.CheckThreadID(thread); err != nil {
		return answer{}, noSuch("thread_id", err)
	}
	c.threadID = thread
	result, err := a.Store.Result(ctx, thread)
	if err != nil {
		return answer{}, a.explainMissing(ctx, thread, err)
	}
	c.taskID = result.TaskID
	return answer{
		header: map[string]string{"Content-Location": checkpointPath(thread, result.N)},
		body:   result.Data,
	}, nil
}

// explainMissing tells a result that is still to come from a thread that nobody has heard of.
func (a *api) explainMissing(ctx context.Context, thread string, err error) error {
	missing := orMissing(err, "")
	p, ok := missing.(*problem) //nolint:errorlint // made by the line above
	if !ok {
		return err
	}
	records, _, err := a.Store.History(ctx, thread, "", 1)
	switch {
	case err != nil:
		return err
	case len(records) == 0:
		p.detail = "There is no thread of this id, or everything in it has expired."
	default:
		p.detail = fmt.Sprintf("The thread has no result yet. How its tasks stand: GET /agent/threads/%s/history.", url.PathEscape(thread))
		p.header = map[string]string{"Retry-After": "1"}
	}
	return p
}

func checkpointPath(thread string, n uint64) string {
	return fmt.Sprintf("/agent/threads/%s/checkpoints/%d", url.PathEscape(thread), n)
}

// maxTurns is how many results a state shows.
const maxTurns = 10

// getCheckpoint shows one checkpoint, and the conversation as it was after it.
func (a *api) getCheckpoint(ctx context.Context, c *call) (answer, error) {
	thread := c.PathValue("thread_id")
	if err := task.CheckThreadID(thread); err != nil {
		return answer{}, noSuch("thread_id", err)
	}
	n, err := checkpointNumber(c.PathValue("n"))
	if err != nil {
		return answer{}, noSuch("n", err)
	}
	c.threadID = thread
	at, err := a.Store.Checkpoint(ctx, thread, n)
	if err != nil {
		return answer{}, orMissing(err, "The thread has no checkpoint of this number, or it has expired.")
	}
	c.taskID = at.TaskID
	turns, err := a.turns(ctx, thread, n)
	if err != nil {
		return answer{}, err
	}
	state, err := new(object).raw("turns", list(turns)).bytes()
	if err != nil {
		return answer{}, err
	}
	body, err := new(object).
		add("thread_id", thread).
		add("n", n).
		add("task_id", at.TaskID).
		add("task", at.Task).
		add("step", at.Step).
		add("attempt", at.Attempt).
		add("duration_ms", at.Duration.Milliseconds()).
		add("tokens", at.Tokens).
		add("updated_at", moment(at.UpdatedAt)).
		raw("data", at.Data).
		raw("state", state).
		bytes()
	return answer{body: body}, err
}

// checkpointNumber reads n of a path.
func checkpointNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, errors.New("must be a whole number from 1")
	}
	return n, nil
}

// A state takes few reads for tasks of few steps, and ends somewhere for tasks of very many.
const (
	checkpointsPerRead = 4 * maxTurns
	maxReads           = 8
)

// turns are the newest results up to checkpoint n, oldest first.
func (a *api) turns(ctx context.Context, thread string, n uint64) ([]jsontext.Value, error) {
	var turns []jsontext.Value
	for read := 0; read < maxReads && n > 0 && len(turns) < maxTurns; read++ {
		checkpoints, err := a.Store.Latest(ctx, thread, n, checkpointsPerRead)
		if err != nil {
			return nil, err
		}
		if len(checkpoints) == 0 {
			break
		}
		for _, cp := range checkpoints {
			n = cp.N - 1
			if !cp.Last || len(turns) == maxTurns {
				continue
			}
			turn, err := turnView(cp)
			if err != nil {
				return nil, err
			}
			turns = append(turns, turn)
		}
	}
	slices.Reverse(turns)
	return turns, nil
}

func turnView(cp checkpoint.Checkpoint) (jsontext.Value, error) {
	return new(object).
		add("n", cp.N).
		add("task_id", cp.TaskID).
		add("task", cp.Task).
		raw("data", cp.Data).
		bytes()
}
