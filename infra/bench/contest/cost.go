package contest

import (
	"context"
	"fmt"

	"agentworker/internal/emulator/dynamodb/meter"
)

// Cost is what one task has cost in the worker.
type Cost struct {
	meter.Usage
	Logged int // bytes written to the function's log
}

// At measures one task as turn number turn of a thread, 1 or more. dir is the folder with the binaries. The error may be
// [ErrTooLarge].
func (t *Table) At(ctx context.Context, c Contestant, dir string, turn int) (cost Cost, err error) {
	table, err := t.New(ctx)
	if err != nil {
		return cost, err
	}
	defer func() {
		if dropErr := t.Drop(context.WithoutCancel(ctx), table); err == nil {
			err = dropErr
		}
	}()
	task := func() (Use, error) {
		return Feed(ctx, c.Function(dir, t.Meter.URL(), table), Batches(1, 1, 1))
	}
	if turn > 1 {
		if _, err := task(); err != nil {
			return cost, fmt.Errorf("%s: first turn: %w", c.Name, err)
		}
		if turn > 2 {
			if err := t.Grow(ctx, c, table, Thread(0), turn-1); err != nil {
				return cost, err
			}
		}
	}
	var use Use
	cost.Usage = t.Meter.Measure(func() { use, err = task() })
	cost.Logged = use.Logged
	if err != nil {
		return cost, fmt.Errorf("%s: turn %d: %w", c.Name, turn, err)
	}
	return cost, nil
}
