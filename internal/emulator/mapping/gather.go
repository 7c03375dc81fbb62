package mapping

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/cenkalti/backoff/v5"
)

const (
	// longPoll is the longest wait of a receive.
	longPoll = 20 * time.Second
	// receiveSize is the most that one receive brings.
	receiveSize = 10
	// shortPause lies between two polls in the last second of a window, which is too short for a long poll.
	shortPause = 100 * time.Millisecond
)

// gather receives one batch: until it has BatchSize messages, the window after the first has passed, or the event is full.
// What is over the event's size waits for the next batch. It returns early, with what it has, when ctx ends.
func (m *Mapping) gather(ctx context.Context) []message {
	var batch []message
	batch, m.pending = cut(live(m.pending))
	pause := newBackOff()
	for ctx.Err() == nil && len(m.pending) == 0 && len(batch) < m.config.BatchSize {
		wait := longPoll
		if len(batch) > 0 {
			left := time.Until(batch[0].received.Add(m.config.BatchingWindow))
			if left <= 0 {
				break
			}
			wait = min(longPoll, left.Truncate(time.Second))
		}
		received, err := m.receive(ctx, m.config.BatchSize-len(batch), wait)
		if err != nil {
			if ctx.Err() == nil {
				m.observe(Event{Outcome: OutcomeReceiveError, Started: time.Now(), Err: err})
				sleep(ctx, pause.NextBackOff())
			}
			continue
		}
		pause.Reset()
		batch = append(batch, received...)
		if !m.config.fifo() { // the parts of a FIFO batch must run one after the other
			batch, m.pending = cut(batch)
		}
		if len(received) == 0 && wait < time.Second {
			sleep(ctx, shortPause)
		}
	}
	return batch
}

func (m *Mapping) receive(ctx context.Context, atMost int, wait time.Duration) ([]message, error) {
	out, err := m.config.SQS.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:                    &m.config.QueueURL,
		MaxNumberOfMessages:         int32(min(atMost, receiveSize)), //nolint:gosec // at most 10
		WaitTimeSeconds:             int32(wait / time.Second),       //nolint:gosec // at most 20
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		return nil, err
	}
	messages := make([]message, 0, len(out.Messages))
	for _, msg := range out.Messages {
		messages = append(messages, m.newMessage(msg, time.Now()))
	}
	m.counts.polled.Add(int64(len(messages)))
	return messages, nil
}

// newBackOff paces retries: from 100 ms to 3 s, with jitter.
func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = 100*time.Millisecond, 3*time.Second, 2
	b.Reset()
	return b
}

// sleep waits and tells whether ctx is still alive.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
