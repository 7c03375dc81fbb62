package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/sqsevent"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// delivery is one record of a batch, decoded.
type delivery struct {
	*sqsevent.Record
	message  task.Message
	malErr   error     // why the message is no task, nil: it is one
	sentAt   time.Time // when it was put on the queue
	receives int       // how often it has been delivered, this time included
	queueURL string    // "": unknown
	trace    string    // the trace that the message belongs to, "": unknown
	deadline time.Time // of the invocation
	margin   time.Duration
	known    bool // its type is registered
}

// Where Lambda hands over nothing else, an invocation is taken to end within this time.
const noDeadline = 15 * time.Minute

func (w *Worker) delivery(ctx context.Context, m *sqsevent.Record) *delivery {
	d := &delivery{Record: m, queueURL: w.queueURLs[lastPart(m.EventSourceARN, ':')]}
	sent, err := strconv.ParseInt(m.Attributes.SentTimestamp, 10, 64)
	if err == nil {
		d.sentAt = time.UnixMilli(sent)
	}
	d.receives, _ = strconv.Atoi(m.Attributes.ApproximateReceiveCount)
	d.trace = telemetry.TraceRoot(m.Attributes.AWSTraceHeader)
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(noDeadline)
	}
	d.deadline, d.margin = deadline, margin(ctx)
	d.message, d.malErr = w.Tasks.Decode([]byte(m.Body), m.MessageID, d.sentAt)
	_, d.known = w.Tasks.Lookup(d.message.Task)
	return d
}

// group is the record's message group in a FIFO queue. Groups of a standard queue order nothing.
func (d *delivery) group() string {
	if d.Attributes.SequenceNumber == "" {
		return ""
	}
	return d.Attributes.MessageGroupID
}

// An attempt's time is divided like this: the handler's context ends a margin before the invocation; a commit may take
// a quarter of the margin more, recording how the attempt ended another quarter, handing back what was not begun a third one;
// the rest is for the answer.

// commitBy is when a handler that does not return is left behind.
func (d *delivery) commitBy() time.Time { return d.deadline.Add(-d.margin * 3 / 4) }

func (d *delivery) committing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), d.commitBy())
}

// settling is the context for recording how an attempt ended, also after its own has.
func (d *delivery) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), d.deadline.Add(-d.margin/2))
}

// traced is the context of work on this record: its log lines belong to the message's trace, not to the invocation's.
func (d *delivery) traced(ctx context.Context) context.Context {
	return telemetry.WithTraceID(ctx, d.trace)
}

// taskType is the type for logs and metrics; "" when it is not registered: a message that is no task may say
// anything there.
func (d *delivery) taskType() string {
	if !d.known {
		return ""
	}
	return d.message.Task
}

// writtenType is the type for the table, where it helps whoever looks for the sender.
func (d *delivery) writtenType() string {
	const most = 60
	if len(d.message.Task) > most {
		return ""
	}
	return d.message.Task
}

// attrs are what a log line says of the record: ids, never content.
func (d *delivery) attrs() []any {
	return []any{"task_id", string(d.message.ID), "task", d.taskType(), "thread_id", d.message.Thread, "message_id", d.MessageID, "receive", d.receives}
}

// comeBack is a record and when it shall be delivered again.
type comeBack struct {
	d     *delivery
	after time.Duration
}

// changeVisibility lets SQS deliver the record again after the given time. If it cannot be done, the record comes
// back all the same, when its visibility timeout ends: that is worth a log line only.
func (w *Worker) changeVisibility(ctx context.Context, d *delivery, after time.Duration) {
	var err error
	if d.queueURL == "" {
		err = errNoQueue
	} else {
		_, err = w.Queue.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
			QueueUrl: &d.queueURL, ReceiptHandle: &d.ReceiptHandle, VisibilityTimeout: seconds(after),
		})
	}
	if err != nil {
		w.Logger.WarnContext(ctx, "visibility not changed: the record comes back at its visibility timeout",
			append(d.attrs(), "error", err)...)
	}
}

// changeVisibilities is changeVisibility for several records of one queue.
func (w *Worker) changeVisibilities(ctx context.Context, queueURL string, list []comeBack) {
	const perCall = 10 // Source: Amazon SQS API Reference, "ChangeMessageVisibilityBatch".
	for len(list) > 0 {
		chunk := list[:min(len(list), perCall)]
		list = list[len(chunk):]
		if queueURL == "" {
			w.Logger.WarnContext(ctx, "visibility not changed", "records", len(chunk), "error", errNoQueue)
			continue
		}
		in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &queueURL}
		for i, c := range chunk {
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
				Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &c.d.ReceiptHandle, VisibilityTimeout: seconds(c.after),
			})
		}
		out, err := w.Queue.ChangeMessageVisibilityBatch(ctx, in)
		if err != nil {
			w.Logger.WarnContext(ctx, "visibility not changed", "records", len(chunk), "error", err)
			continue
		}
		codes := map[string]string{} // of the entries that were not done; "": the answer says nothing of it
		for _, e := range in.Entries {
			codes[*e.Id] = ""
		}
		for _, ok := range out.Successful {
			delete(codes, aws.ToString(ok.Id))
		}
		for _, f := range out.Failed {
			codes[aws.ToString(f.Id)] = aws.ToString(f.Code)
		}
		for i, c := range chunk {
			if code, failed := codes[strconv.Itoa(i)]; failed {
				w.Logger.WarnContext(c.d.traced(ctx), "visibility not changed", append(c.d.attrs(), "code", code)...)
			}
		}
	}
}
