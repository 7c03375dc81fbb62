package mapping

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"agentworker/internal/emulator/lambda"
)

// Outcome says how a batch ended.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded       Outcome = "succeeded"        // all messages deleted
	OutcomePartial         Outcome = "partial"          // the function named the failed ones, the others are deleted
	OutcomeFunctionError   Outcome = "function-error"   // exception, crash or timeout: nothing deleted
	OutcomeInvalidResponse Outcome = "invalid-response" // not a batch response: nothing deleted
	OutcomeInvokeError     Outcome = "invoke-error"     // the function could not be run: nothing deleted
	OutcomeExpired         Outcome = "expired"          // throttled, or held back, until the visibility had ended
	OutcomeReleased        Outcome = "released"         // given back because the mapping stops
	OutcomeRecursive       Outcome = "recursive"        // dropped by the guard against loops
	OutcomeReceiveError    Outcome = "receive-error"    // the queue could not be read; not a batch
)

// Event is the end of one batch, or one failed receive.
type Event struct {
	Outcome  Outcome
	Started  time.Time
	Duration time.Duration
	// RequestID of the invocation.
	RequestID string
	// Size is the number of messages of the batch.
	Size int
	// Failed holds the message ids that come back after their visibility timeout.
	Failed []string
	// Deleted counts the messages that SQS deleted; DeleteFailed holds the ids of those that it did not, which come back.
	Deleted      int
	DeleteFailed []string
	// Expired holds the ids of those whose visibility ended before the function could be run: SQS hands them out again.
	Expired []string
	// Dropped holds the message ids that the guard against loops held back.
	Dropped []string
	// FunctionError is Lambda's word for a failed function, for example Unhandled.
	FunctionError string
	// Err is the cause, when there is one.
	Err error
}

// Counts are the mapping's metrics since its start, with CloudWatch's names.
// Source: AWS Lambda Developer Guide, "Types of metrics for Lambda functions", event source mapping metrics.
type Counts struct {
	PolledEventCount       int64
	InvokedEventCount      int64
	FailedInvokeEventCount int64
	DeletedEventCount      int64
	// RecursiveInvocationsDropped counts messages here, not invocations.
	RecursiveInvocationsDropped int64
}

type counters struct{ polled, invoked, failed, deleted, dropped atomic.Int64 }

// Counts returns the metrics; it may be called at any time.
func (m *Mapping) Counts() Counts {
	return Counts{
		PolledEventCount: m.counts.polled.Load(), InvokedEventCount: m.counts.invoked.Load(), FailedInvokeEventCount: m.counts.failed.Load(),
		DeletedEventCount: m.counts.deleted.Load(), RecursiveInvocationsDropped: m.counts.dropped.Load(),
	}
}

func (m *Mapping) observe(event Event) {
	event.Duration = time.Since(event.Started)
	switch event.Outcome {
	case OutcomeFunctionError, OutcomeInvokeError, OutcomeInvalidResponse, OutcomeExpired:
		m.counts.failed.Add(int64(event.Size - len(event.Dropped)))
	}
	m.counts.dropped.Add(int64(len(event.Dropped)))
	m.counts.deleted.Add(int64(event.Deleted))
	switch {
	case event.Err == nil:
	case event.Outcome == OutcomeReceiveError:
		m.config.Logger.Warn("queue could not be read", "queue", m.config.QueueARN, "error", event.Err)
	default:
		m.config.Logger.Warn("batch did not succeed", "queue", m.config.QueueARN, "outcome", string(event.Outcome),
			"request_id", event.RequestID, "size", event.Size, "error", event.Err)
	}
	m.config.Observe(event)
}

const maxErrorText = 1000

func functionError(result lambda.Result) error {
	text := result.Payload
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	if len(text) == 0 {
		return errors.New(result.FunctionError)
	}
	return fmt.Errorf("%s: %s", result.FunctionError, text)
}
