package dlqalarm_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// memoryQueue is one standard queue for tests with fake time or with very many messages.
type memoryQueue struct {
	delay time.Duration // of every receive
	name  string

	mu       sync.Mutex
	messages []*stored
	longest  time.Duration // for which messages were hidden
	released int
}

type stored struct {
	id, body  string
	sentAt    time.Time
	visibleAt time.Time
}

func (q *memoryQueue) put(id, body string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = append(q.messages, &stored{id: id, body: body, sentAt: time.Now()})
}

func (q *memoryQueue) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &sqs.GetQueueAttributesOutput{Attributes: map[string]string{
		"QueueArn":                              "arn:aws:sqs:us-east-1:000000000000:" + q.name,
		"ApproximateNumberOfMessages":           strconv.Itoa(len(q.messages)),
		"ApproximateNumberOfMessagesNotVisible": "0",
	}}, nil
}

func (q *memoryQueue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if q.delay > 0 {
		select {
		case <-time.After(q.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	hide := time.Duration(in.VisibilityTimeout) * time.Second
	q.longest = max(q.longest, hide)
	out := new(sqs.ReceiveMessageOutput)
	for _, m := range q.messages {
		if m.visibleAt.After(now) {
			continue
		}
		m.visibleAt = now.Add(hide)
		out.Messages = append(out.Messages, types.Message{
			MessageId: &m.id, Body: &m.body, ReceiptHandle: aws.String("handle-" + m.id),
			Attributes: map[string]string{"SentTimestamp": strconv.FormatInt(m.sentAt.UnixMilli(), 10)},
		})
		if len(out.Messages) == int(in.MaxNumberOfMessages) {
			break
		}
	}
	return out, nil
}

func (q *memoryQueue) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(in.Entries); n < 1 || n > 10 {
		return nil, fmt.Errorf("a batch of %d", n)
	}
	out := new(sqs.ChangeMessageVisibilityBatchOutput)
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
		for _, m := range q.messages {
			if "handle-"+m.id == *e.ReceiptHandle {
				m.visibleAt = time.Now().Add(time.Duration(e.VisibilityTimeout) * time.Second)
				q.released++
			}
		}
	}
	return out, nil
}

func (q *memoryQueue) hidden() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		if m.visibleAt.After(time.Now()) {
			n++
		}
	}
	return n
}

// memoryQueues are queues by URL.
type memoryQueues map[string]*memoryQueue

func (m memoryQueues) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return m[*in.QueueUrl].GetQueueAttributes(ctx, in)
}

func (m memoryQueues) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return m[*in.QueueUrl].ReceiveMessage(ctx, in)
}

func (m memoryQueues) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	return m[*in.QueueUrl].ChangeMessageVisibilityBatch(ctx, in)
}

// memoryStore has failed records for every task, whose failure is made up by why.
type memoryStore struct {
	noSweep
	why  func(d checkpoint.DeadLetter) task.Failure
	mu   sync.Mutex
	keys map[string]string
}

func (s *memoryStore) Record(context.Context, task.ID) (checkpoint.Record, error) {
	return checkpoint.Record{}, checkpoint.ErrNotFound
}

func (s *memoryStore) FindByMessage(context.Context, string, string, time.Time, time.Time) (checkpoint.Record, error) {
	return checkpoint.Record{}, checkpoint.ErrNotFound
}

func (s *memoryStore) DeadLettered(_ context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error) {
	f := d.Reason
	if s.why != nil {
		f = s.why(d)
	}
	return checkpoint.Record{TaskID: d.ID, Status: checkpoint.Failed, Error: &f, MessageID: d.MessageID}, nil
}

func (s *memoryStore) ReserveKey(_ context.Context, k checkpoint.Key) (checkpoint.Key, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.MessageID = s.keys[k.Hash]
	return k, true, nil
}

func (s *memoryStore) KeySent(_ context.Context, hash, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]string{}
	}
	s.keys[hash] = id
	return nil
}

// noSweep has nothing to give up.
type noSweep struct{}

func (noSweep) Sweep(context.Context) (checkpoint.Sweep, error) {
	return checkpoint.Sweep{Ended: time.Now()}, nil
}
func (noSweep) Swept(context.Context, checkpoint.Sweep) error { return nil }
func (noSweep) Unfinished(context.Context, time.Time, checkpoint.SweepKey) (list []checkpoint.Record, next checkpoint.SweepKey, err error) {
	return nil, next, nil
}

func (noSweep) GiveUp(context.Context, checkpoint.Record, task.Failure) (bool, error) {
	return false, nil
}
