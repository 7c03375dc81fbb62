package engine

import (
	"container/list"
	"time"
)

// queue is one queue in memory. Whoever touches it holds the engine's lock.
type queue struct {
	id       uint64
	name     string
	arn      string
	created  time.Time
	modified time.Time
	purged   time.Time
	attrs    map[string]string // what was set explicitly, in normal form
	cfg      config            // attrs over the defaults, typed
	tags     map[string]string

	messages map[uint64]*message
	groups   map[string]*group
	ready    indexed[*group]   // groups that have something to deliver, next one first
	timers   indexed[*message] // delayed and in flight, by visibleAt
	retained indexed[*message] // all, by retainedFrom
	inFlight int
	delayed  int

	dedup      map[string]*duplicate
	dedupOrder list.List // *duplicate, oldest first

	wake chan struct{} // closed and replaced when a waiting receive should look again
}

// group is what the messages of one message group id share. In a standard queue it is a tenant.
type group struct {
	name     string
	order    list.List         // FIFO: every message, oldest first
	avail    indexed[*message] // standard: the deliverable ones, longest waiting first
	count    int
	inFlight int
	readyAt  int
}

func newQueue(id uint64, name, arn string) *queue {
	q := &queue{
		id: id, name: name, arn: arn,
		attrs: map[string]string{}, tags: map[string]string{},
		wake: make(chan struct{}),
	}
	q.clear()
	return q
}

// clear forgets all messages. Deduplication goes on, as it does over deletes.
func (q *queue) clear() {
	q.messages = map[uint64]*message{}
	q.groups = map[string]*group{}
	q.inFlight, q.delayed = 0, 0
	q.ready = indexed[*group]{less: q.before, at: func(g *group) *int { return &g.readyAt }}
	q.timers = indexed[*message]{
		less: func(a, b *message) bool {
			if a.visibleAt.Equal(b.visibleAt) {
				return a.position < b.position
			}
			return a.visibleAt.Before(b.visibleAt)
		},
		at: func(m *message) *int { return &m.timerAt },
	}
	q.retained = indexed[*message]{
		less: func(a, b *message) bool { return a.retainedFrom.Before(b.retainedFrom) },
		at:   func(m *message) *int { return &m.retainedAt },
	}
	if q.dedup == nil {
		q.dedup = map[string]*duplicate{}
	}
}

// before orders groups by the message that each would deliver next: who has been waiting longest
// goes first, so that a message that always fails cannot starve those behind it.
func (q *queue) before(a, b *group) bool {
	if q.cfg.fifo {
		return waitedLonger(a.order.Front().Value.(*message), b.order.Front().Value.(*message))
	}
	return waitedLonger(a.avail.items[0], b.avail.items[0])
}

func waitedLonger(a, b *message) bool {
	if a.visibleAt.Equal(b.visibleAt) {
		return a.position < b.position
	}
	return a.visibleAt.Before(b.visibleAt)
}

// insert takes in a message whose visibleAt says when it can be delivered.
func (q *queue) insert(m *message, as state) {
	g := q.groups[m.group]
	if g == nil {
		g = &group{name: m.group, readyAt: -1}
		g.avail = indexed[*message]{less: waitedLonger, at: func(m *message) *int { return &m.readyAt }}
		q.groups[m.group] = g
	}
	g.count++
	m.tenant = g
	q.messages[m.position] = m
	q.retained.add(m)
	if q.cfg.fifo {
		m.element = g.order.PushBack(m)
	}
	q.become(m, as)
}

// drop takes the message out of the queue.
func (q *queue) drop(m *message) {
	g := m.tenant
	g.count--
	delete(q.messages, m.position)
	q.retained.remove(m)
	if q.cfg.fifo {
		g.order.Remove(m.element)
	}
	q.become(m, absent)
	if g.count == 0 {
		delete(q.groups, g.name)
	}
}

// become moves the message from one state to another and keeps every index right.
func (q *queue) become(m *message, to state) {
	g := m.tenant
	switch m.state {
	case delayed:
		q.delayed--
	case inFlight:
		q.inFlight--
		g.inFlight--
	}
	q.timers.remove(m)
	g.avail.remove(m)

	m.state = to
	switch to {
	case delayed:
		q.delayed++
		q.timers.add(m)
	case inFlight:
		q.inFlight++
		g.inFlight++
		q.timers.add(m)
	case ready:
		if !q.cfg.fifo {
			g.avail.add(m)
		}
	}
	if g.deliverable(q.cfg.fifo) {
		q.ready.place(g)
	} else {
		q.ready.remove(g)
	}
}

// deliverable reports whether the group's next message can be handed out. In a FIFO queue that is
// the oldest message or none: one in flight holds back all that came after it.
func (g *group) deliverable(fifo bool) bool {
	if !fifo {
		return g.avail.Len() > 0
	}
	front := g.order.Front()
	return front != nil && front.Value.(*message).state == ready
}

// run returns the FIFO group's next messages in order, at most limit.
func (g *group) run(limit int) []*message {
	var out []*message
	for e := g.order.Front(); e != nil && len(out) < limit; e = e.Next() {
		m := e.Value.(*message)
		if m.state != ready {
			break
		}
		out = append(out, m)
	}
	return out
}

// next returns the standard queue's next message, nil when there is none.
//
// A group that is noisy steps back behind those that are not. There are at most nine noisy groups,
// since each holds more than a tenth of what is in flight, so the search is short.
func (q *queue) next() *message {
	var noisy []*group
	var pick *group
	for {
		g, ok := q.ready.top()
		if !ok {
			break
		}
		if !q.noisy(g) {
			pick = g
			break
		}
		q.ready.remove(g)
		noisy = append(noisy, g)
	}
	for _, g := range noisy {
		q.ready.add(g)
		if pick == nil || q.noisy(pick) && g.inFlight < pick.inFlight {
			pick = g
		}
	}
	if pick == nil {
		return nil
	}
	m, _ := pick.avail.top()
	return m
}

// noisy: Amazon SQS Developer Guide, "Amazon SQS fair queues": more than 10 % of the messages in
// flight and at least 30 of its own. A message without a group id is a tenant of its own.
func (q *queue) noisy(g *group) bool {
	return g.name != "" && g.inFlight >= 30 && g.inFlight*10 > q.inFlight
}

// nextChange is when time alone will change what a receive could get: a delay or a visibility timeout
// ends, or a message expires, which lets a FIFO group go on.
func (q *queue) nextChange() (at time.Time, ok bool) {
	if m, some := q.timers.top(); some {
		at, ok = m.visibleAt, true
	}
	if m, some := q.retained.top(); some {
		if expiry := m.retainedFrom.Add(q.cfg.retention); !ok || expiry.Before(at) {
			at, ok = expiry, true
		}
	}
	return at, ok
}

// look wakes every waiting receive.
func (q *queue) look() {
	close(q.wake)
	q.wake = make(chan struct{})
}

func (q *queue) visible() int { return len(q.messages) - q.inFlight - q.delayed }
