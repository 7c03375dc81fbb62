package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/task"
)

// steps is a task of several steps, each with a call. It can be told to fail in several ways after its first step.
type steps struct{ ledger.Client }

type input struct {
	Steps int    `json:"steps"`
	Fail  string `json:"fail"`
}

// output of a step.
type output struct {
	Calls []string `json:"calls"` // of the steps before, and its own
}

func (s steps) definition() task.Definition[input, output] {
	return task.Definition[input, output]{Name: "drill_steps", Run: s.run}
}

func (s steps) run(ctx context.Context, run task.Run, in input) (out output, err error) {
	for i := 1; i <= in.Steps; i++ {
		step := task.Step[output]
		if i == in.Steps {
			step = task.LastStep[output]
		}
		before := out.Calls
		out, err = step(ctx, run, fmt.Sprintf("step-%d", i), func(ctx context.Context, effects *task.Effects) (output, error) {
			// Like a client that knows no contexts: the call goes on when the attempt's time is over.
			n, err := s.Call(context.WithoutCancel(ctx), effects.Key())
			return output{append(before[:len(before):len(before)], mention(n))}, err
		})
		if err != nil {
			return out, err
		}
		if err := s.fail(run, in.Fail); i == 1 && err != nil {
			return out, err
		}
	}
	return out, nil
}

func (s steps) fail(run task.Run, how string) error {
	switch how {
	case "permanent":
		return task.Failf("DRILL_PERMANENT", "told to fail for good")
	case "panic":
		panic("told to panic")
	case "always":
		return task.RetryAfter(task.WithCode("DRILL_ALWAYS", errors.New("told to fail each time")), 0)
	case "once":
		if run.Attempt() == 1 {
			return task.RetryAfter(task.WithCode("DRILL_ONCE", errors.New("told to fail once")), time.Minute)
		}
	}
	return nil
}
