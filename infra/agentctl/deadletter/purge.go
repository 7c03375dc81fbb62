package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/dlq"
)

// Purge deletes the selected messages, one by one. The records of their tasks stay as they are. progress, if not nil, is
// told how many have been deleted.
func (q *Queue) Purge(ctx context.Context, s Selection, progress func(int)) (Report, error) {
	o := newOutcome(q, s, RedriveOptions{Progress: progress})
	before, err := dlq.ReadDepth(ctx, q.SQS, q.DeadLetterURL)
	if err != nil {
		return o.report(before, err), err
	}
	err = q.tour(ctx, q.Hide+5*q.Pause, before.Total(), func(ctx context.Context, _ int, m types.Message) (verdict, error) {
		l, rec, err := q.judge(ctx, m, q.Store.DeadLettered)
		if ctx.Err() != nil {
			return later, ctx.Err()
		}
		begun, _ := rec.RedriveOf(l.MessageID)
		o.saw(l)
		if !s.takes(l, begun) {
			o.other(l)
			return stays, nil
		}
		if err != nil {
			return o.failed(ctx, m, l, err), nil
		}
		if err := q.remove(ctx, m); err != nil {
			return o.failed(ctx, m, l, err), nil
		}
		o.purged(l)
		return gone, nil
	})
	return o.report(before, err), err
}

// ErrPurgedJustNow says that the queue was purged less than a minute ago, which SQS allows only once.
// Source: Amazon SQS API Reference, "PurgeQueue".
var ErrPurgedJustNow = errors.New("SQS purges a queue once in 60 seconds: try again in a minute")

// PurgeTime is how long SQS may take for a purge; messages that come meanwhile may go with the others.
const PurgeTime = time.Minute

// PurgeAll deletes everything in the queue, also what a look could not show. Before that it makes the records of the tasks
// that it sees say that they have failed: afterwards nobody could. The error may be [ErrPurgedJustNow].
func (q *Queue) PurgeAll(ctx context.Context) error {
	err := q.tour(ctx, 0, 0, func(ctx context.Context, _ int, m types.Message) (verdict, error) {
		_, _, err := q.judge(ctx, m, q.Store.DeadLettered)
		return stays, err
	})
	if err != nil {
		return fmt.Errorf("mark the tasks in %s: %w", q.Name(), err)
	}
	_, err = q.SQS.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &q.DeadLetterURL})
	var justNow *types.PurgeQueueInProgress
	switch {
	case errors.As(err, &justNow):
		return fmt.Errorf("purge %s: %w", q.Name(), ErrPurgedJustNow)
	case err != nil:
		return fmt.Errorf("purge %s: %w", q.Name(), err)
	}
	return nil
}
