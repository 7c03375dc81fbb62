package mapping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/emulator/lambda"
)

// Limits of an SQS event source mapping. Source: AWS Lambda Developer Guide, "Lambda parameters for Amazon SQS event source
// mappings" and "Configuring scaling behavior for SQS event source mappings".
const (
	maxBatchSize     = 10_000
	maxBatchSizeFIFO = 10
	maxWindow        = 300 * time.Second
	minConcurrency   = 2
	maxConcurrency   = 1000
	// unsetConcurrency is how far a mapping without a maximum goes.
	unsetConcurrency = 1250
)

// SQSAPI is what a mapping asks of SQS; *sqs.Client has it. Wrap it to inject faults.
type SQSAPI interface {
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

// Invoker runs the function; *lambda.Function is one. An error that is [lambda.ErrThrottled] is retried, any other counts
// as a failure of the whole batch. Wrap it to inject faults.
type Invoker interface {
	Invoke(ctx context.Context, payload []byte) (lambda.Result, error)
}

// Config describes a mapping.
type Config struct {
	// QueueURL is where to receive, QueueARN what the function is told; both end in .fifo for a FIFO queue.
	QueueURL, QueueARN string
	// Region that the function is told; empty means the ARN's.
	Region string
	// BatchSize is how many messages an invocation gets at most: 1 to 10,000, for a FIFO queue to 10; zero means 10.
	// More than 10 needs a BatchingWindow of a second or more.
	BatchSize int
	// BatchingWindow is how long messages are gathered after the first: whole seconds, 0 to 300 s; none for a FIFO queue.
	BatchingWindow time.Duration
	// MaximumConcurrency bounds the invocations at once, 2 to 1000; zero means 1,250, which a mapping without a maximum has.
	// At the bound no message is received.
	MaximumConcurrency int
	// ReportBatchItemFailures makes the function's answer say which messages failed. Without it the answer is ignored.
	ReportBatchItemFailures bool
	// FunctionTimeout is compared with the queue's visibility timeout before the first receive.
	FunctionTimeout time.Duration
	// DrainTimeout is how long running invocations may go on once Run's context has ended; after that their messages are
	// released while the function may still run. Zero means until they end.
	DrainTimeout time.Duration
	// Function is invoked with the batches.
	Function Invoker
	// SQS is the queue service.
	SQS SQSAPI
	// Logger gets warnings and errors; nil means slog.Default.
	Logger *slog.Logger
	// Observe, if set, is told the end of each batch, and of each receive that failed. It may be called concurrently.
	Observe func(Event)
}

func (c Config) fifo() bool {
	return strings.HasSuffix(c.QueueARN, ".fifo") || strings.HasSuffix(c.QueueURL, ".fifo")
}

// Validate reports every setting that AWS would refuse, and what is missing, each in a sentence.
func (c Config) Validate() error {
	var problems []error
	report := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	report(c.QueueURL == "", "QueueURL is missing: name the queue to receive from")
	report(len(strings.Split(c.QueueARN, ":")) != 6, "QueueARN %q is not arn:aws:sqs:region:account:name", c.QueueARN)
	report(c.Function == nil, "Function is missing: name what to invoke")
	report(c.SQS == nil, "SQS is missing: give a client")
	if c.fifo() {
		report(c.BatchSize > maxBatchSizeFIFO, "BatchSize %d is above %d, the most that a FIFO queue allows", c.BatchSize, maxBatchSizeFIFO)
		report(c.BatchingWindow != 0, "BatchingWindow %v is not supported for a FIFO queue: leave it zero", c.BatchingWindow)
	} else {
		report(c.BatchSize > maxBatchSize, "BatchSize %d is above %d, the most that a standard queue allows", c.BatchSize, maxBatchSize)
		report(c.BatchSize > maxBatchSizeFIFO && c.BatchingWindow < time.Second, "BatchSize %d needs a BatchingWindow of at least 1 s: more than 10 messages do not come at once", c.BatchSize)
		report(c.BatchingWindow < 0 || c.BatchingWindow > maxWindow, "BatchingWindow %v is outside of 0 s to %v", c.BatchingWindow, maxWindow)
		report(c.BatchingWindow%time.Second != 0, "BatchingWindow %v is not a whole number of seconds", c.BatchingWindow)
	}
	report(c.BatchSize < 0, "BatchSize %d is below 1", c.BatchSize)
	report(c.MaximumConcurrency != 0 && (c.MaximumConcurrency < minConcurrency || c.MaximumConcurrency > maxConcurrency),
		"MaximumConcurrency %d is outside of %d to %d", c.MaximumConcurrency, minConcurrency, maxConcurrency)
	report(c.FunctionTimeout < 0, "FunctionTimeout %v is below zero", c.FunctionTimeout)
	report(c.DrainTimeout < 0, "DrainTimeout %v is below zero", c.DrainTimeout)
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	if c.BatchSize == 0 {
		c.BatchSize = 10
	}
	if c.MaximumConcurrency == 0 {
		c.MaximumConcurrency = unsetConcurrency
	}
	if c.Region == "" {
		c.Region = strings.Split(c.QueueARN, ":")[3]
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	return c
}
