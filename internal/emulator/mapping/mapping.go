// Package mapping is Lambda's event source mapping for SQS: it receives messages, invokes a function with batches of them
// and deletes those that the function finished. It works with every SQS endpoint that the AWS SDK can talk to.
//
// What AWS documents it keeps to the letter: how batches are cut, which answers of the function delete which messages, that
// a failed batch comes back when its visibility ends and not earlier, that nothing is received beyond the maximum
// concurrency, and that a message group of a FIFO queue is never in two invocations. Filters, provisioned pollers and the
// slow start of a new mapping (five pollers, 300 more a minute) are left out.
//
// Source: AWS Lambda Developer Guide, "Using Lambda with Amazon SQS" and the pages below it.
package mapping

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// ErrVisibilityTooShort says that the queue's visibility timeout is below the function's timeout: messages would come back
// while the function still works on them. AWS refuses to create such a mapping.
var ErrVisibilityTooShort = errors.New("InvalidParameterValueException")

// Mapping connects one queue with one function. Run may be called once.
type Mapping struct {
	config     Config
	visibility time.Duration
	limit      *limiter
	groups     *groupLocks
	pending    []message // received, and too much for the last batch; of the gathering goroutine
	counts     counters
}

// New makes a mapping; the error lists every problem of the configuration.
func New(config Config) (*Mapping, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("event source mapping of %s: %w", config.QueueARN, err)
	}
	config = config.withDefaults()
	return &Mapping{config: config, limit: newLimiter(config.MaximumConcurrency), groups: newGroupLocks()}, nil
}

// Run receives and invokes until ctx ends. Then it receives no more, lets running invocations end, for DrainTimeout at
// most, releases every message that was received and not finished, so that it is visible at once, and returns nil.
//
// It fails before the first receive with [ErrVisibilityTooShort], or when the queue cannot be asked for its visibility
// timeout, which it takes to stay what it is. Failed receives are retried.
func (m *Mapping) Run(ctx context.Context) error {
	switch err := m.check(ctx); {
	case ctx.Err() != nil:
		return nil // it was ended before it had begun
	case err != nil:
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if m.config.DrainTimeout > 0 {
		defer context.AfterFunc(ctx, func() {
			timer := time.NewTimer(m.config.DrainTimeout)
			defer timer.Stop()
			select {
			case <-timer.C:
				stop()
			case <-work.Done():
			}
		})()
	}

	var running sync.WaitGroup
	for m.limit.acquire(ctx) {
		batch := m.gather(ctx)
		if ctx.Err() != nil {
			m.limit.release()
			m.release(work, batch)
			break
		}
		running.Go(func() {
			defer m.limit.release()
			m.process(ctx, work, batch)
		})
	}
	m.release(work, m.pending)
	running.Wait()
	return nil
}

// check compares the queue's visibility timeout with the function's timeout.
func (m *Mapping) check(ctx context.Context) error {
	out, err := m.config.SQS.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       &m.config.QueueURL,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameVisibilityTimeout},
	})
	if err != nil {
		return fmt.Errorf("read the visibility timeout of %s: %w", m.config.QueueURL, err)
	}
	seconds, err := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameVisibilityTimeout)])
	if err != nil {
		return fmt.Errorf("read the visibility timeout of %s: %w", m.config.QueueURL, err)
	}
	m.visibility = time.Duration(seconds) * time.Second
	if m.visibility < m.config.FunctionTimeout {
		return fmt.Errorf("%w: Queue visibility timeout: %d seconds is less than Function timeout: %v seconds",
			ErrVisibilityTooShort, seconds, m.config.FunctionTimeout.Seconds())
	}
	return nil
}

// process takes one batch to its end. ctx ends when the mapping stops, work when invocations must be given up.
func (m *Mapping) process(ctx, work context.Context, batch []message) {
	if !m.config.fifo() {
		m.deliver(ctx, work, batch)
		return
	}
	unlock := m.groups.lock(batch)
	defer unlock()
	for len(batch) > 0 {
		var part []message
		part, batch = cut(batch)
		finished := m.deliver(ctx, work, part)
		batch = m.releaseBehind(work, part, finished, batch)
	}
}

// releaseBehind gives back the messages of the rest whose group has a message in part that did not finish: they may not
// overtake it. It returns the others.
func (m *Mapping) releaseBehind(work context.Context, part []message, finished map[string]bool, rest []message) []message {
	blocked := map[string]bool{}
	for _, msg := range part {
		if !finished[msg.id] {
			blocked[msg.group] = true
		}
	}
	var next, behind []message
	for _, msg := range rest {
		if blocked[msg.group] {
			behind = append(behind, msg)
		} else {
			next = append(next, msg)
		}
	}
	m.release(work, behind)
	return next
}

// deliver invokes the function with one batch and deletes what it finished, which it returns by message id.
func (m *Mapping) deliver(ctx, work context.Context, batch []message) map[string]bool {
	event := Event{Started: time.Now(), Size: len(batch)}
	batch, dropped := withoutLoops(batch, m.config.fifo())
	event.Dropped = ids(dropped)
	given := ids(batch)
	batch, result, err := m.invoke(ctx, work, batch)
	event.Expired = slices.DeleteFunc(given, func(id string) bool { return slices.Contains(ids(batch), id) })
	event.RequestID, event.FunctionError = result.RequestID, result.FunctionError

	finished := map[string]bool{}
	switch {
	case errors.Is(err, errNothingLeft):
		event.Outcome = OutcomeExpired
		if len(dropped) == event.Size {
			event.Outcome = OutcomeRecursive
		}
	case errors.Is(err, errStopped):
		event.Outcome = OutcomeReleased
		m.release(work, batch)
	case err != nil:
		event.Outcome, event.Err = OutcomeInvokeError, err
	case result.FunctionError != "":
		event.Outcome, event.Err = OutcomeFunctionError, functionError(result)
	default:
		failed, err := m.failures(result.Payload, batch)
		event.Outcome, event.Err = OutcomeSucceeded, err
		switch {
		case err != nil:
			event.Outcome = OutcomeInvalidResponse
		case len(failed) > 0:
			event.Outcome, event.Failed = OutcomePartial, failed.in(batch)
		}
		if err == nil {
			for _, msg := range batch {
				if !failed[msg.id] {
					finished[msg.id] = true
				}
			}
			event.Deleted, event.DeleteFailed = m.delete(work, only(batch, finished))
		}
	}
	if whole := event.Outcome == OutcomeFunctionError || event.Outcome == OutcomeInvokeError || event.Outcome == OutcomeInvalidResponse; whole {
		event.Failed = ids(batch)
	}
	m.adapt(event.Outcome)
	m.observe(event)
	return finished
}

// adapt lowers the concurrency after a failed batch and raises it after a good one. With ReportBatchItemFailures Lambda
// does not scale down on failures. Source: "Handling errors for an SQS event source in Lambda", partial batch responses.
func (m *Mapping) adapt(outcome Outcome) {
	switch outcome {
	case OutcomeSucceeded, OutcomePartial:
		m.limit.raise()
	case OutcomeFunctionError, OutcomeInvokeError:
		if !m.config.ReportBatchItemFailures {
			m.limit.lower()
		}
	}
}
