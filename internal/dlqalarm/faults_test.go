package dlqalarm_test

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/dlqalarm"
	"agentworker/internal/task"
)

// impatient is an SQS that does not wait where there is nothing: the SDK leaves out a wait of 0, and the test's queues
// have none of their own.
type impatient struct{ dlq.API }

func (i impatient) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if in.WaitTimeSeconds == 0 {
		return nil, errors.New("a receive without long polling may miss messages, and leaves the waiting to the queue")
	}
	short := *in
	short.WaitTimeSeconds = 0
	return i.API.ReceiveMessage(ctx, &short, o...)
}

var errThrottled = errors.New("throttled")

// flaky is an SQS whose ReceiveMessage stops working.
type flaky struct {
	dlq.API
	receives int // that work; for one queue only
	err      error
	onBreak  func()
}

func (f *flaky) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if f.receives--; f.receives < 0 {
		if f.onBreak != nil {
			f.onBreak()
		}
		return nil, f.err
	}
	return f.API.ReceiveMessage(ctx, in, o...)
}

// clinging is an SQS that refuses to make the first message of each batch visible again.
type clinging struct{ dlq.API }

func (c clinging) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	broken := in.Entries[0]
	in.Entries = in.Entries[1:]
	out, err := c.API.ChangeMessageVisibilityBatch(ctx, in, o...)
	if err == nil {
		out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: broken.Id, Code: aws.String("ReceiptHandleIsInvalid")})
	}
	return out, err
}

// brokenStore is a store that cannot write one record.
type brokenStore struct {
	dlqalarm.Store
	id  task.ID
	err error
}

func (s *brokenStore) DeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error) {
	if d.ID == s.id {
		return checkpoint.Record{}, s.err
	}
	return s.Store.DeadLettered(ctx, d)
}

// downStore is a store without its table.
type downStore struct {
	noSweep
	err error
}

func (s downStore) Record(context.Context, task.ID) (checkpoint.Record, error) {
	return checkpoint.Record{}, s.err
}

func (s downStore) FindByMessage(context.Context, string, string, time.Time, time.Time) (checkpoint.Record, error) {
	return checkpoint.Record{}, s.err
}

func (s downStore) DeadLettered(context.Context, checkpoint.DeadLetter) (checkpoint.Record, error) {
	return checkpoint.Record{}, s.err
}

func (s downStore) ReserveKey(context.Context, checkpoint.Key) (checkpoint.Key, bool, error) {
	return checkpoint.Key{}, false, s.err
}

func (s downStore) KeySent(context.Context, string, string) error { return s.err }
