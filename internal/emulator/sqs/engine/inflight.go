package engine

import "time"

// MaximumVisibility is the longest time from a receive during which its message can be kept hidden.
// Source: Amazon SQS Developer Guide, "Amazon SQS visibility timeout".
const MaximumVisibility = 12 * time.Hour

// Delete deletes the message that the receipt handle was given out for. A message that is gone is
// no error. A handle of an older receive deletes nothing: silently in a standard queue, while a FIFO
// queue refuses a handle whose visibility timeout has ended.
func (e *Engine) Delete(name, handle string) error {
	return first(e.DeleteBatch(name, []string{handle}))
}

// DeleteBatch is Delete for several handles, each with an outcome of its own: nil for done.
func (e *Engine) DeleteBatch(name string, handles []string) ([]*Error, error) {
	results := make([]*Error, len(handles))
	err := e.on(name, func(q *queue, _ time.Time) error {
		for i, handle := range handles {
			results[i] = e.delete(q, handle)
		}
		return nil
	})
	return results, err
}

func (e *Engine) delete(q *queue, handle string) *Error {
	r, err := parseReceipt(handle, q)
	if err != nil {
		return err
	}
	m := q.messages[r.position]
	if m == nil {
		return nil
	}
	current := r.receives == m.receives
	if q.cfg.fifo && (!current || m.state != inFlight) {
		return invalidValue(handle, "ReceiptHandle", "The receipt handle has expired.")
	}
	if !current {
		return nil
	}
	full := q.inFlight >= e.limit
	e.remove(q, m)
	if q.cfg.fifo || full {
		q.look() // the next message of its group, or under the limit, may go now
	}
	return nil
}

// Change is a new visibility timeout for the message of a receipt handle, 0 s to 12 h from now.
type Change struct {
	Handle  string
	Timeout time.Duration
}

// ChangeVisibility hides the message for so long from now, or makes it deliverable at once with 0.
// MessageNotInflight: it is deliverable already. InvalidParameterValue: it is gone, was received
// again since, or would be hidden for longer than 12 hours after its receive.
func (e *Engine) ChangeVisibility(name string, change Change) error {
	return first(e.ChangeVisibilityBatch(name, []Change{change}))
}

// ChangeVisibilityBatch is ChangeVisibility for several handles, each with an outcome of its own:
// nil for done.
func (e *Engine) ChangeVisibilityBatch(name string, changes []Change) ([]*Error, error) {
	results := make([]*Error, len(changes))
	err := e.on(name, func(q *queue, now time.Time) error {
		for i, change := range changes {
			results[i] = e.change(q, change, now)
		}
		q.look()
		return nil
	})
	return results, err
}

func (e *Engine) change(q *queue, c Change, now time.Time) *Error {
	r, err := parseReceipt(c.Handle, q)
	if err != nil {
		return err
	}
	m := q.messages[r.position]
	if m == nil || r.receives != m.receives {
		return invalidValue(c.Handle, "ReceiptHandle",
			"Message does not exist or is not available for visibility timeout change.")
	}
	if m.state != inFlight {
		return refuse(MessageNotInflight, "The message referred to by the receipt handle is not in flight.")
	}
	if now.Add(c.Timeout).After(m.lastReceived.Add(MaximumVisibility)) {
		return invalidValue(int(c.Timeout.Seconds()), "VisibilityTimeout",
			"Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
	}
	m.visibleAt = now.Add(c.Timeout)
	if c.Timeout == 0 {
		q.become(m, ready)
	} else {
		q.become(m, inFlight)
	}
	e.store.putState(q, m)
	return nil
}

// first is the outcome of a batch of one.
func first(results []*Error, err error) error {
	if err == nil && results[0] != nil {
		return results[0]
	}
	return err
}
