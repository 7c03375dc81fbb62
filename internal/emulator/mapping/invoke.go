package mapping

import (
	"context"
	"errors"

	"agentworker/internal/emulator/lambda"
)

var (
	errNothingLeft = errors.New("the visibility of all messages has ended")
	errStopped     = errors.New("the mapping stops")
)

// invoke runs the function with the batch. While it is throttled the call is repeated until the visibility of the messages
// has ended; those are left out, because SQS hands them out again. It returns the batch that the function got.
func (m *Mapping) invoke(ctx, work context.Context, batch []message) ([]message, lambda.Result, error) {
	pause := newBackOff()
	for {
		if ctx.Err() != nil {
			return batch, lambda.Result{}, errStopped
		}
		if batch = live(batch); len(batch) == 0 {
			return nil, lambda.Result{}, errNothingLeft
		}
		result, err := m.config.Function.Invoke(lambda.WithTrace(work, nextHop(batch)), encode(batch))
		switch {
		case err == nil:
			m.counts.invoked.Add(int64(len(batch)))
			return batch, result, nil
		case work.Err() != nil || (ctx.Err() != nil && errors.Is(err, lambda.ErrClosed)):
			return batch, lambda.Result{RequestID: result.RequestID}, errStopped
		case !errors.Is(err, lambda.ErrThrottled):
			return batch, result, err
		}
		m.limit.lower()
		if !sleep(ctx, pause.NextBackOff()) {
			return batch, result, errStopped
		}
	}
}
