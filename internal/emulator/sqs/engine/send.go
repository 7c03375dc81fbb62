package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
)

// DeduplicationInterval is how long a deduplication id is remembered, from the first send on and
// also when that message is long deleted.
// Source: Amazon SQS Developer Guide, "Using the message deduplication ID in Amazon SQS".
const DeduplicationInterval = 5 * time.Minute

// Result is the outcome of one entry of a batch.
type Result struct {
	Sent Sent   // of a send
	Err  *Error // nil when the entry was done
}

// Send puts one message into the queue. In a FIFO queue a duplicate is answered like the first copy
// and not queued again.
func (e *Engine) Send(name string, out Outgoing) (Sent, error) {
	var sent Sent
	err := e.on(name, func(q *queue, now time.Time) error {
		if err := q.identify(&out); err != nil {
			return err
		}
		if err := q.fits(out, "One or more parameters are invalid."); err != nil {
			return err
		}
		sent = e.accept(q, out, now)
		return nil
	})
	return sent, err
}

// SendBatch puts the messages into the queue in their order, each with an outcome of its own. What a
// FIFO queue misses in one of them (its group, its deduplication id) refuses them all.
func (e *Engine) SendBatch(name string, batch []Outgoing) ([]Result, error) {
	results := make([]Result, len(batch))
	err := e.on(name, func(q *queue, now time.Time) error {
		for i := range batch {
			if err := q.identify(&batch[i]); err != nil {
				return err
			}
		}
		for i, out := range batch {
			if results[i].Err = q.fits(out, "One or more parameters cannot be validated."); results[i].Err == nil {
				results[i].Sent = e.accept(q, out, now)
			}
		}
		return nil
	})
	return results, err
}

// identify checks the ids that the queue's type asks for and completes them.
func (q *queue) identify(out *Outgoing) error {
	if !q.cfg.fifo {
		return nil
	}
	if out.GroupID == "" {
		return refuse(MissingParameter, "The request must contain the parameter MessageGroupId.")
	}
	if out.Delay != nil && *out.Delay > 0 {
		return invalidValue(int(out.Delay.Seconds()), "DelaySeconds",
			"The request include parameter that is not valid for this queue type.")
	}
	out.Delay = nil
	if out.DeduplicationID == "" {
		if !q.cfg.contentDedup {
			return refuse(InvalidParameterValue, "The queue should either have ContentBasedDeduplication enabled "+
				"or MessageDeduplicationId provided explicitly")
		}
		sum := sha256.Sum256([]byte(out.Body))
		out.DeduplicationID = hex.EncodeToString(sum[:])
	}
	return nil
}

func (q *queue) fits(out Outgoing, verdict string) *Error {
	if out.Size() > q.cfg.maximumSize {
		return refuse(InvalidParameterValue, "%s Reason: Message must be shorter than %d bytes.", verdict, q.cfg.maximumSize)
	}
	return nil
}

// accept queues a message that was checked, unless it is a duplicate.
func (e *Engine) accept(q *queue, out Outgoing, now time.Time) Sent {
	if q.cfg.fifo {
		if first := q.dedup[q.dedupKey(out)]; first != nil {
			return first.sent
		}
	}
	m := newMessage()
	m.id, m.body, m.attrs = uuid.NewString(), out.Body, out.Attributes
	m.trace, m.group, m.dedup, m.sender = out.TraceHeader, out.GroupID, out.DeduplicationID, out.SenderID
	delay := q.cfg.delay
	if out.Delay != nil {
		delay = *out.Delay
	}
	e.enqueue(q, m, now, delay)
	sent := Sent{MessageID: m.id, SequenceNumber: m.sequence}
	if q.cfg.fifo {
		e.remember(q, &duplicate{key: q.dedupKey(out), sent: sent, at: now})
	}
	return sent
}

// enqueue puts the message at the end of the queue as one that arrives now.
func (e *Engine) enqueue(q *queue, m *message, now time.Time, delay time.Duration) {
	m.sentAt, m.retainedFrom = now, now
	e.append(q, m, now, delay)
}

func (e *Engine) append(q *queue, m *message, now time.Time, delay time.Duration) {
	m.position, m.visibleAt, m.sequence = e.next(), now.Add(delay), ""
	if q.cfg.fifo {
		m.sequence = sequenceNumber(m.position)
	}
	as := ready
	if delay > 0 {
		as = delayed
	}
	q.insert(m, as)
	e.store.putMessage(e, q, m)
	q.look()
}

// duplicate is what a FIFO queue remembers about a message that it was sent.
type duplicate struct {
	key  string
	sent Sent
	at   time.Time
}

// dedupKey makes the scope part of the id; group ids hold no line breaks.
func (q *queue) dedupKey(out Outgoing) string {
	if q.cfg.perGroupDedup {
		return out.GroupID + "\n" + out.DeduplicationID
	}
	return "\n" + out.DeduplicationID
}

func (e *Engine) remember(q *queue, d *duplicate) {
	q.dedup[d.key] = d
	q.dedupOrder.PushBack(d)
	e.store.putDuplicate(q, d)
}

func (e *Engine) forgetDuplicates(q *queue, now time.Time) {
	for front := q.dedupOrder.Front(); front != nil; front = q.dedupOrder.Front() {
		d := front.Value.(*duplicate)
		if now.Before(d.at.Add(DeduplicationInterval)) {
			return
		}
		q.dedupOrder.Remove(front)
		delete(q.dedup, d.key)
		e.store.deleteDuplicate(q, d)
	}
}
