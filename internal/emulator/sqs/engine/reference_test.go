package engine_test

import (
	"cmp"
	"slices"
	"time"

	"agentworker/internal/emulator/sqs/engine"
)

// reference is what a queue service is supposed to do, in plain lists that are gone through from end to end. It is
// brought to a time by pass and otherwise holds no clock.
type reference struct {
	now      time.Time
	arrivals int
	queues   map[string]*refQueue
	tasks    []*refTask
}

type refQueue struct {
	name       string
	fifo       bool
	visibility time.Duration
	delay      time.Duration
	retention  time.Duration
	content    bool // content-based deduplication
	perGroup   bool // deduplication within the message group only
	dead       *refQueue
	most       int // receives before a message goes to dead
	purged     time.Time
	messages   []*refMessage // in order of arrival
	seen       []refSeen
}

type refSeen struct {
	key string
	was engine.Sent
	at  time.Time
}

type refMessage struct {
	number  string // what the test calls it, over redrives too
	id      string // "" until it shows, after a redrive
	arrival int
	body    string
	group   string
	dedup   string
	source  string // queue that it was dead-lettered from

	sequence     string // "" until it shows
	sentAt       time.Time
	retainedFrom time.Time
	visibleAt    time.Time
	held         bool // it was received; until visibleAt it is in flight
	receives     int
	first, last  time.Time
}

type refTask struct {
	source, dest *refQueue // dest nil: each message's own
	pace         time.Duration
	next         time.Time
	status       string
	moved        int
	toMove       int
}

func (m *refMessage) visible(now time.Time) bool  { return !m.visibleAt.After(now) }
func (m *refMessage) inFlight(now time.Time) bool { return m.held && !m.visible(now) }

// pass brings everything to a time: running moves step by step, and what has expired is gone.
func (r *reference) pass(to time.Time) {
	for {
		var due *refTask
		for _, t := range r.tasks {
			if t.status == engine.TaskRunning && !t.next.After(to) && (due == nil || t.next.Before(due.next)) {
				due = t
			}
		}
		if due == nil {
			break
		}
		r.now = due.next
		r.expire()
		r.step(due)
		due.next = due.next.Add(due.pace)
	}
	r.now = to
	r.expire()
}

func (r *reference) expire() {
	for _, q := range r.queues {
		q.messages = slices.DeleteFunc(q.messages, func(m *refMessage) bool { return !r.now.Before(m.retainedFrom.Add(q.retention)) })
		q.seen = slices.DeleteFunc(q.seen, func(s refSeen) bool { return !r.now.Before(s.at.Add(engine.DeduplicationInterval)) })
	}
}

func (r *reference) step(t *refTask) {
	m := r.oldest(t.source)
	if m == nil {
		t.status = engine.TaskCompleted
		return
	}
	to := t.dest
	if to == nil {
		to = r.queues[m.source]
	}
	if to == nil {
		t.status = engine.TaskFailed
		return
	}
	t.source.remove(m)
	m.id, m.source, m.receives, m.first, m.last = "", "", 0, time.Time{}, time.Time{}
	m.sentAt, m.retainedFrom = r.now, r.now
	r.arrive(to, m, to.delay)
	t.moved++
	if r.oldest(t.source) == nil {
		t.status = engine.TaskCompleted
	}
}

// oldest is the message that could be received and has waited longest.
func (r *reference) oldest(q *refQueue) *refMessage {
	list := q.messages
	if q.fifo {
		list = nil
		for _, group := range q.groups() {
			list = append(list, q.of(group)[0])
		}
	}
	list = slices.DeleteFunc(slices.Clone(list), func(m *refMessage) bool { return !m.visible(r.now) })
	slices.SortFunc(list, waited)
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func waited(a, b *refMessage) int {
	return cmp.Or(a.visibleAt.Compare(b.visibleAt), cmp.Compare(a.arrival, b.arrival))
}

func (r *reference) arrive(q *refQueue, m *refMessage, delay time.Duration) {
	r.arrivals++
	m.arrival, m.visibleAt, m.held, m.sequence = r.arrivals, r.now.Add(delay), false, ""
	q.messages = append(q.messages, m)
}

func (r *reference) deadLetter(q *refQueue, m *refMessage) {
	q.remove(m)
	m.source = q.name
	if q.fifo {
		m.dedup, m.sentAt, m.retainedFrom = m.id, r.now, r.now
	}
	r.arrive(q.dead, m, 0)
}

// receiveOrdered is a receive from a FIFO queue: group after group, the longest waiting first, of each the oldest
// messages as far as all of them are visible.
func (r *reference) receiveOrdered(q *refQueue, most int, hide time.Duration, room int) (out []*refMessage) {
	tried := map[string]bool{}
	for len(out) < min(most, room) {
		var heads []*refMessage
		for _, group := range q.groups() {
			if head := q.of(group)[0]; head.visible(r.now) && !tried[group] {
				heads = append(heads, head)
			}
		}
		if len(heads) == 0 {
			return out
		}
		group := slices.MinFunc(heads, waited).group
		limit := min(most, room) - len(out)
		took := 0
		for _, m := range q.of(group) {
			if !m.visible(r.now) || limit == 0 {
				break
			}
			limit--
			if q.exhausted(m) {
				r.deadLetter(q, m)
				continue
			}
			r.take(m, hide)
			out = append(out, m)
			took++
		}
		tried[group] = took > 0
	}
	return out
}

func (r *reference) take(m *refMessage, hide time.Duration) {
	m.receives++
	if m.first.IsZero() {
		m.first = r.now
	}
	m.last, m.visibleAt, m.held = r.now, r.now.Add(hide), true
}

func (q *refQueue) exhausted(m *refMessage) bool { return q.dead != nil && m.receives >= q.most }

func (q *refQueue) remove(m *refMessage) {
	q.messages = slices.DeleteFunc(q.messages, func(other *refMessage) bool { return other == m })
}

func (q *refQueue) groups() (names []string) {
	for _, m := range q.messages {
		if !slices.Contains(names, m.group) {
			names = append(names, m.group)
		}
	}
	return names
}

func (q *refQueue) of(group string) (list []*refMessage) {
	for _, m := range q.messages {
		if m.group == group {
			list = append(list, m)
		}
	}
	return list
}

func (q *refQueue) key(group, dedup string) string {
	if q.perGroup {
		return group + " " + dedup
	}
	return dedup
}

// counts are the numbers of visible messages, of those in flight and of the delayed ones.
func (r *reference) counts(q *refQueue) (visible, inFlight, delayed int) {
	for _, m := range q.messages {
		switch {
		case m.visible(r.now):
			visible++
		case m.held:
			inFlight++
		default:
			delayed++
		}
	}
	return visible, inFlight, delayed
}
