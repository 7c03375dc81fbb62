// Package worker runs the tasks of an SQS batch. message.go is the life of one message; run.go is
// what a task's handler sees of it.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/batch"
	"agentworker/internal/checkpoint"
	"agentworker/internal/sqsevent"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// Queue is what the worker calls of the SQS client: Lambda itself receives and deletes.
type Queue interface {
	ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

// Store is what the worker calls of the table; see [checkpoint.Store].
type Store interface {
	Claim(context.Context, checkpoint.ClaimRequest) (checkpoint.Record, error)
	Latest(ctx context.Context, thread string, upTo uint64, limit int) ([]checkpoint.Checkpoint, error)
	Checkpoint(ctx context.Context, thread string, n uint64) (checkpoint.Checkpoint, error)
	Commit(context.Context, checkpoint.Commit) (checkpoint.Committed, error)
	End(context.Context, checkpoint.Record, checkpoint.End) error
}

// Config of a [Worker]. All fields are needed unless they say otherwise.
type Config struct {
	Tasks   *task.Registry
	Store   Store
	Queue   Queue
	Logger  *slog.Logger
	Metrics *telemetry.Metrics // nil: none

	// QueueURLs are the queues that feed the worker; the last part of each is the queue's name.
	QueueURLs []string
	// Retries is how often a task is tried again after a plain error.
	Retries int
	// MaxReceiveCount is the queues' own limit: the delivery that reaches it is the last.
	MaxReceiveCount int
	// PartialBatch says that the mapping reports batch item failures. If it does not, any failure fails the whole
	// batch, since Lambda would delete the failed records.
	PartialBatch bool
}

// Worker handles batches. It is safe for concurrent use.
type Worker struct {
	Config
	queueURLs map[string]string // by queue name
}

// New makes a worker.
func New(c Config) *Worker {
	w := &Worker{Config: c, queueURLs: map[string]string{}}
	for _, url := range c.QueueURLs {
		w.queueURLs[lastPart(url, '/')] = url
	}
	return w
}

// Concurrency bounds how many records of a batch run at once. A batch has 10 records unless the mapping's size is
// raised.
const concurrency = 32

// ErrPartialBatchOff is the answer to a batch with failures when the mapping would ignore their list.
var ErrPartialBatchOff = errors.New("records failed and the event source mapping does not report batch item failures: failing the whole batch, so that none is deleted; set FunctionResponseTypes to ReportBatchItemFailures")

// Invoke works through the batch of one SQS event and answers with the ids of the records that must come back. It
// implements lambda.Handler of aws-lambda-go, which hands over the event as it came: decoding it there would cost more than
// all that is done with it here.
func (w *Worker) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	defer func() {
		if err := w.Metrics.Flush(); err != nil {
			w.Logger.ErrorContext(ctx, "metrics lost", "error", err)
		}
	}()
	messages, err := sqsevent.Decode(payload)
	if err != nil {
		return nil, err
	}
	records := make([]batch.Record[*delivery], len(messages))
	for i := range messages {
		d := w.delivery(ctx, &messages[i])
		records[i] = batch.Record[*delivery]{ID: d.MessageID, Group: d.group(), Value: d}
	}
	kept := margin(ctx)
	failed := batch.Process(ctx, records, batch.Options{Concurrency: concurrency, Margin: kept}, w.process)
	returning, cancel := handingBack(ctx, kept)
	w.returnUntouched(returning, records, failed)
	cancel()
	if len(failed) > 0 && !w.PartialBatch {
		return nil, ErrPartialBatchOff
	}
	ids := make([]string, len(failed))
	for i, f := range failed {
		ids[i] = f.ID
	}
	return sqsevent.Failures(ids)
}

// margin is the time that is kept from the function's deadline for handing back what has not finished: 5 %, at
// least 2 s, but never more than half of what there is.
func margin(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	return min(max(left/20, 2*time.Second), left/2)
}

// handingBack is the context for calls after the last attempt: without an answer in time all records would come back, the
// finished ones too.
func handingBack(ctx context.Context, margin time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-margin/4))
	}
	return ctx, func() {}
}

// returnUntouched makes the records visible again that no attempt has dealt with: those behind a failed one of their
// group come back together with it, the others when the invocation is over.
func (w *Worker) returnUntouched(ctx context.Context, records []batch.Record[*delivery], failed []batch.Failure) {
	errs := make(map[string]error, len(failed))
	heads := map[string]time.Duration{}
	for _, f := range failed {
		errs[f.ID] = f.Err
	}
	back := map[string][]comeBack{} // by queue URL
	for _, r := range records {
		d, err := r.Value, errs[r.ID]
		var later *retryError
		switch {
		case errors.As(err, &later):
			heads[r.Group] = later.after
		case errors.Is(err, batch.ErrBehind):
			back[d.queueURL] = append(back[d.queueURL], comeBack{d, heads[r.Group]})
		case errors.Is(err, batch.ErrDeadline):
			w.Metrics.Count(telemetry.DeadlineHandedBack, d.taskType())
			w.Logger.WarnContext(d.traced(ctx), "record handed back: no time left for it", d.attrs()...)
			back[d.queueURL] = append(back[d.queueURL], comeBack{d, time.Until(d.deadline) + time.Second})
		case errors.Is(err, checkpoint.ErrFenceLost):
		case err != nil:
			w.Logger.ErrorContext(d.traced(ctx), "record failed outside of its attempt", append(d.attrs(), "error", err)...)
		}
	}
	for url, list := range back {
		w.changeVisibilities(ctx, url, list)
	}
}

// requestID is the invocation's id.
func requestID(ctx context.Context) string {
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		return lc.AwsRequestID
	}
	return "local"
}

func lastPart(s string, sep byte) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == sep {
			return s[i+1:]
		}
	}
	return s
}

var _ Store = (*checkpoint.Store)(nil)

func seconds(d time.Duration) int32 {
	d = min(max(d, 0), task.MaxDelay)
	return int32((d + time.Second - 1) / time.Second)
}

var errNoQueue = errors.New("the record's queue is not among the configured ones")
