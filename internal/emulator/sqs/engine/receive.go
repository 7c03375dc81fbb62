package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Demand says what a receive wants.
type Demand struct {
	// Max is how many messages are taken at most, 1 to 10.
	Max int
	// Visibility is how long they are hidden, 0 to 12 hours; nil means the queue's own timeout.
	Visibility *time.Duration
	// Wait is how long the call waits for a first message, 0 to 20 seconds; nil means the queue's own time.
	Wait *time.Duration
}

// Receive takes messages that are deliverable, waiting for the first one as long as it is told to.
// It returns none when there are none; too many in flight give OverLimit in a standard queue that is
// polled without waiting. A caller whose context ends gets its error and takes nothing.
func (e *Engine) Receive(ctx context.Context, name string, want Demand) ([]Message, error) {
	var deadline time.Time
	for {
		var got []Message
		var wake <-chan struct{}
		var now, due time.Time
		err := e.on(name, func(q *queue, at time.Time) error {
			// Under the lock: a client that has gone must not leave a message in flight.
			if err := ctx.Err(); err != nil {
				return err
			}
			now = at
			if deadline.IsZero() {
				deadline = at.Add(orElse(want.Wait, q.cfg.wait))
			}
			if q.inFlight >= e.limit && !q.cfg.fifo && deadline.Equal(at) {
				return refuse(OverLimit, "Too many messages in flight for queue %s: the limit is %d.", q.name, e.limit)
			}
			got = e.take(q, at, want.Max, orElse(want.Visibility, q.cfg.visibility))
			wake, due = q.wake, e.due(q, deadline)
			return nil
		})
		switch {
		case errors.Is(err, ErrClosed) && !deadline.IsZero():
			return nil, nil // closed while it waited
		case err != nil:
			return nil, fmt.Errorf("receive from %s: %w", name, err)
		case len(got) > 0 || !now.Before(deadline):
			return got, nil
		}
		if err := e.sleep(ctx, due, wake); err != nil {
			return nil, fmt.Errorf("receive from %s: %w", name, err)
		}
	}
}

func orElse(given *time.Duration, otherwise time.Duration) time.Duration {
	if given != nil {
		return *given
	}
	return otherwise
}

// due is when a waiting receive must look again even if nobody calls: at its own deadline, when a
// delay or a visibility timeout ends, or when a move task goes on.
func (e *Engine) due(q *queue, deadline time.Time) time.Time {
	if at, ok := q.nextChange(); ok && at.Before(deadline) {
		deadline = at
	}
	for _, t := range e.tasks {
		if t.status == TaskRunning && t.nextAt.Before(deadline) {
			deadline = t.nextAt
		}
	}
	return deadline
}

// sleep waits until something may have changed.
func (e *Engine) sleep(ctx context.Context, due time.Time, wake <-chan struct{}) error {
	start := e.clock.Now()
	timer := e.clock.NewTimer(due.Sub(start))
	defer timer.Stop()
	// A clock that was set while the timer was made would let it ring too late: look again instead.
	if e.clock.Since(start) >= time.Millisecond {
		return nil
	}
	select {
	case <-wake:
	case <-timer.Chan():
	case <-e.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// take hands out up to limit messages and moves those that were received too often.
func (e *Engine) take(q *queue, now time.Time, limit int, visibility time.Duration) []Message {
	var out []Message
	for len(out) < limit && q.inFlight < e.limit {
		batch := q.offer(min(limit-len(out), e.limit-q.inFlight))
		if len(batch) == 0 {
			break
		}
		for _, m := range batch {
			if target := e.deadLetterQueue(q, m); target != nil {
				e.deadLetter(q, m, target, now)
				continue
			}
			m.receives++
			if m.firstReceived.IsZero() {
				m.firstReceived = now
			}
			m.lastReceived, m.visibleAt = now, now.Add(visibility)
			q.become(m, inFlight)
			e.store.putState(q, m)
			out = append(out, m.deliver(q))
		}
	}
	return out
}

// offer returns what can be delivered next. A FIFO queue fills up with messages of one group before
// it turns to another. Source: Amazon SQS Developer Guide, "FIFO queue delivery logic".
func (q *queue) offer(limit int) []*message {
	if !q.cfg.fifo {
		if m := q.next(); m != nil {
			return []*message{m}
		}
		return nil
	}
	g, ok := q.ready.top()
	if !ok {
		return nil
	}
	return g.run(limit)
}

// deadLetterQueue returns where the message has to go instead of being delivered once more; nil when
// it may be delivered, also because its dead-letter queue no longer exists.
func (e *Engine) deadLetterQueue(q *queue, m *message) *queue {
	if q.cfg.deadLetterArn == "" || m.receives < q.cfg.maxReceives {
		return nil
	}
	target := e.byArn(q.cfg.deadLetterArn)
	if target == nil || target == q || target.cfg.fifo != q.cfg.fifo {
		return nil
	}
	return target
}

// deadLetter moves the message with its id, body, attributes and receive count. A standard queue
// keeps its times as well, so that retention counts from the first send; in a FIFO queue the message
// arrives anew, with its own id for deduplication.
// Source: Amazon SQS Developer Guide, "Using dead-letter queues in Amazon SQS".
func (e *Engine) deadLetter(q *queue, m *message, target *queue, now time.Time) {
	e.advance(target, now)
	e.remove(q, m)
	m.source = q.arn
	if q.cfg.fifo {
		m.dedup = m.id
		m.sentAt, m.retainedFrom = now, now
	}
	e.append(target, m, now, 0)
}
