package engine

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// queueName is a pattern, not state.
var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// reuse is how long the name of a deleted queue stays taken, and how long after a purge the next one
// is refused. Source: Amazon SQS API Reference, CreateQueue and PurgeQueue.
const reuse = 60 * time.Second

// CreateQueue makes a queue. When it exists already and every attribute given here has the value
// it has there, nothing happens; otherwise the error is QueueNameExists. A name that was deleted
// less than a minute ago gives QueueDeletedRecently.
func (e *Engine) CreateQueue(name string, attributes, tags map[string]string) error {
	return e.do(func(now time.Time) error {
		q := newQueue(0, name, e.arn(name))
		q.cfg.fifo = strings.EqualFold(attributes["FifoQueue"], "true")
		if err := checkName(name, q.cfg.fifo); err != nil {
			return err
		}
		attrs, err := e.patch(q, attributes)
		if err != nil {
			return err
		}
		if existing := e.queues[name]; existing != nil {
			return sameAttributes(existing, attrs, attributes)
		}
		if at, ok := e.deleted[name]; ok && now.Before(at.Add(reuse)) {
			return refuse(QueueDeletedRecently,
				"You must wait 60 seconds after deleting a queue before you can create another with the same name.")
		}
		delete(e.deleted, name)
		q.id, q.created, q.modified = e.next(), now, now
		q.attrs, q.cfg = attrs, configure(attrs)
		maps.Copy(q.tags, tags)
		e.queues[name] = q
		e.store.putQueue(e, q)
		return nil
	})
}

func checkName(name string, fifo bool) error {
	stem, suffixed := strings.CutSuffix(name, ".fifo")
	switch {
	case fifo && (!suffixed || len(name) > 80 || !queueName.MatchString(stem)):
		return refuse(InvalidParameterValue, "The name of a FIFO queue can only include alphanumeric characters, "+
			"hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	case !fifo && !queueName.MatchString(name):
		return refuse(InvalidParameterValue,
			"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

func sameAttributes(q *queue, wanted, given map[string]string) error {
	shown := q.show()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		want := wanted[name]
		if want == "" {
			continue
		}
		if shown[name] != want {
			return refuse(QueueNameExists,
				"A queue already exists with the same name and a different value for attribute %s", name)
		}
	}
	return nil
}

// DeleteQueue deletes the queue, all messages in it, and the tasks that move messages out of it.
func (e *Engine) DeleteQueue(name string) error {
	return e.on(name, func(q *queue, now time.Time) error {
		delete(e.queues, name)
		maps.DeleteFunc(e.deleted, func(_ string, at time.Time) bool { return !now.Before(at.Add(reuse)) })
		e.deleted[name] = now
		e.store.deleteQueue(q)
		e.forgetTasks(q.arn, 0)
		q.look()
		return nil
	})
}

// PurgeQueue deletes all messages of the queue, those in flight too. A second purge within a minute
// is refused with PurgeQueueInProgress.
func (e *Engine) PurgeQueue(name string) error {
	return e.on(name, func(q *queue, now time.Time) error {
		if !q.purged.IsZero() && now.Before(q.purged.Add(reuse)) {
			return refuse(PurgeQueueInProgress, "Only one PurgeQueue operation on %s is allowed every 60 seconds.", name)
		}
		q.purged = now
		e.store.purgeQueue(e, q)
		q.clear()
		q.look()
		return nil
	})
}

// QueueExists fails with QueueDoesNotExist when there is no such queue.
func (e *Engine) QueueExists(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return ErrClosed
	}
	_, err := e.find(name)
	return err
}

// ListQueues returns the names that begin with prefix and come after the given one, sorted, at most
// limit; more tells whether there are others behind them.
func (e *Engine) ListQueues(prefix, after string, limit int) (names []string, more bool, err error) {
	err = e.do(func(time.Time) error {
		names, more = page(slices.Collect(maps.Keys(e.queues)), prefix, after, limit)
		return nil
	})
	return names, more, err
}

// ListDeadLetterSources returns the names of the queues whose dead-letter queue this one is, paged
// like ListQueues.
func (e *Engine) ListDeadLetterSources(name, after string, limit int) (names []string, more bool, err error) {
	err = e.on(name, func(q *queue, _ time.Time) error {
		names, more = page(e.sourcesOf(q), "", after, limit)
		return nil
	})
	return names, more, err
}

func (e *Engine) sourcesOf(q *queue) []string {
	var names []string
	for name, other := range e.queues {
		if other.cfg.deadLetterArn == q.arn {
			names = append(names, name)
		}
	}
	return names
}

func page(all []string, prefix, after string, limit int) (names []string, more bool) {
	slices.Sort(all)
	for _, name := range all {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(names) == limit {
			return names, true
		}
		names = append(names, name)
	}
	return names, false
}

// Attributes returns the named attributes of the queue; "All" stands for every one. Those that are
// not set are left out. An unknown name gives InvalidAttributeName.
func (e *Engine) Attributes(name string, wanted []string) (map[string]string, error) {
	out := map[string]string{}
	err := e.on(name, func(q *queue, _ time.Time) error {
		shown := q.show()
		for _, attribute := range wanted {
			if attribute == "All" {
				out = shown
				continue
			}
			if value, ok := shown[attribute]; ok {
				out[attribute] = value
			} else if !slices.ContainsFunc(rules(), func(r rule) bool { return r.name == attribute }) {
				return refuse(InvalidAttributeName, "Unknown Attribute %s.", attribute)
			}
		}
		return nil
	})
	return out, err
}

// SetAttributes changes attributes; an empty value restores the default.
func (e *Engine) SetAttributes(name string, changes map[string]string) error {
	return e.on(name, func(q *queue, now time.Time) error {
		attrs, err := e.patch(q, changes)
		if err != nil {
			return err
		}
		before := q.cfg
		q.attrs, q.cfg, q.modified = attrs, configure(attrs), now
		if q.cfg.fifo && q.cfg.delay != before.delay {
			e.delayAgain(q, now)
		}
		e.store.putQueue(e, q)
		q.look()
		return nil
	})
}

// delayAgain applies a changed delay to the messages that lie in a FIFO queue; in a standard queue
// a change holds for new messages only. Source: Amazon SQS API Reference, SetQueueAttributes.
func (e *Engine) delayAgain(q *queue, now time.Time) {
	for _, m := range q.messages {
		if m.receives > 0 {
			continue
		}
		m.visibleAt = m.sentAt.Add(q.cfg.delay)
		if m.visibleAt.After(now) {
			q.become(m, delayed)
		} else {
			q.become(m, ready)
		}
		e.store.putState(q, m)
	}
}

// Tags returns the tags of the queue.
func (e *Engine) Tags(name string) (map[string]string, error) {
	var out map[string]string
	err := e.on(name, func(q *queue, _ time.Time) error {
		out = maps.Clone(q.tags)
		return nil
	})
	return out, err
}

// Tag sets and removes tags. More than 50 tags are refused.
func (e *Engine) Tag(name string, set map[string]string, remove []string) error {
	return e.on(name, func(q *queue, _ time.Time) error {
		tags := maps.Clone(q.tags)
		maps.Copy(tags, set)
		for _, key := range remove {
			delete(tags, key)
		}
		if len(tags) > 50 {
			return refuse(InvalidParameterValue, "Too many tags for queue %s: a queue can have at most 50.", name)
		}
		q.tags = tags
		e.store.putQueue(e, q)
		return nil
	})
}

// Depth is a queue's number of messages: deliverable, in flight and delayed; ok is false when the
// queue does not exist.
func (e *Engine) Depth(name string) (visible, notVisible, delayed int, ok bool) {
	err := e.on(name, func(q *queue, _ time.Time) error {
		visible, notVisible, delayed = q.visible(), q.inFlight, q.delayed
		return nil
	})
	return visible, notVisible, delayed, err == nil
}

// OldestAge is how long the oldest message of a queue has been kept, in flight or not; zero for an empty queue. ok is false
// when the queue does not exist.
func (e *Engine) OldestAge(name string) (age time.Duration, ok bool) {
	err := e.on(name, func(q *queue, now time.Time) error {
		if oldest, some := q.retained.top(); some {
			age = now.Sub(oldest.retainedFrom)
		}
		return nil
	})
	return age, err == nil
}
