package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"agentworker/internal/emulator/sqs/engine"
)

func (m *machine) outgoing(t *rapid.T, q *refQueue) engine.Outgoing {
	m.sent++
	out := engine.Outgoing{
		Body:       "body " + strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "body")),
		Attributes: map[string]engine.Attribute{"number": {Type: "String", String: strconv.Itoa(m.sent)}},
		GroupID:    rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "group"),
	}
	if q.fifo {
		if !q.content || rapid.Bool().Draw(t, "explicit id") {
			out.DeduplicationID = rapid.SampledFrom([]string{"d1", "d2", "", "", ""}).Draw(t, "deduplication id")
			if out.DeduplicationID == "" {
				out.DeduplicationID = "unique " + strconv.Itoa(m.sent)
			}
		}
	} else if rapid.IntRange(0, 2).Draw(t, "delays") == 0 {
		delay := time.Duration(rapid.SampledFrom([]int{0, 1, 5, 900}).Draw(t, "delay")) * time.Second
		out.Delay = &delay
	}
	return out
}

// accepted is what the reference makes of a send, which it compares to the engine's answer.
func (m *machine) accepted(t *rapid.T, q *refQueue, out engine.Outgoing, sent engine.Sent) {
	if q.fifo {
		if out.DeduplicationID == "" {
			sum := sha256.Sum256([]byte(out.Body))
			out.DeduplicationID = hex.EncodeToString(sum[:])
		}
		key := q.key(out.GroupID, out.DeduplicationID)
		if i := slices.IndexFunc(q.seen, func(s refSeen) bool { return s.key == key }); i >= 0 {
			if sent != q.seen[i].was {
				t.Fatalf("a duplicate is answered with %+v, want %+v as the first copy", sent, q.seen[i].was)
			}
			return
		}
		q.seen = append(q.seen, refSeen{key, sent, m.ref.now})
	}
	m.fresh(t, sent.MessageID)
	if (sent.SequenceNumber != "") != q.fifo {
		t.Fatalf("sequence number %q in a queue with fifo=%t", sent.SequenceNumber, q.fifo)
	}
	msg := &refMessage{
		number: out.Attributes["number"].String, id: sent.MessageID, body: out.Body, group: out.GroupID, dedup: out.DeduplicationID,
		sentAt: m.ref.now, retainedFrom: m.ref.now,
	}
	delay := q.delay
	if out.Delay != nil {
		delay = *out.Delay
	}
	m.ref.arrive(q, msg, delay)
	msg.sequence = sent.SequenceNumber
	for _, other := range q.messages {
		if q.fifo && other != msg && other.sequence != "" && other.sequence >= msg.sequence {
			t.Fatalf("sequence number %s comes after %s", msg.sequence, other.sequence)
		}
	}
}

func (m *machine) fresh(t *rapid.T, id string) {
	if id == "" || m.ids[id] {
		t.Fatalf("message id %q is not a new one", id)
	}
	m.ids[id] = true
}

func (m *machine) send(t *rapid.T) {
	q := m.pick(t)
	out := m.outgoing(t, q)
	sent, err := m.e.Send(q.name, out)
	if err != nil {
		t.Fatal(err)
	}
	m.accepted(t, q, out, sent)
}

func (m *machine) sendBatch(t *rapid.T) {
	q := m.pick(t)
	batch := make([]engine.Outgoing, rapid.IntRange(1, 4).Draw(t, "entries"))
	for i := range batch {
		batch[i] = m.outgoing(t, q)
	}
	results, err := m.e.SendBatch(q.name, slices.Clone(batch))
	if err != nil || len(results) != len(batch) {
		t.Fatalf("%d results and error %v for %d entries", len(results), err, len(batch))
	}
	for i, result := range results {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		m.accepted(t, q, batch[i], result.Sent)
	}
}

// sendTooLarge is a batch of which one entry is refused, or in a FIFO queue perhaps all of them.
func (m *machine) sendTooLarge(t *rapid.T) {
	q := m.pick(t)
	batch := []engine.Outgoing{m.outgoing(t, q), m.outgoing(t, q), m.outgoing(t, q)}
	batch[1].Body = strings.Repeat("x", 1025)
	whole := q.fifo && rapid.Bool().Draw(t, "one without a group")
	if whole {
		batch[2].GroupID = ""
	}
	results, err := m.e.SendBatch(q.name, slices.Clone(batch))
	switch {
	case whole:
		wantCode(t, err, engine.MissingParameter)
		return
	case err != nil:
		t.Fatal(err)
	case results[0].Err != nil || results[2].Err != nil:
		t.Fatalf("good entries got %v and %v", results[0].Err, results[2].Err)
	}
	wantCode(t, asError(results[1].Err), engine.InvalidParameterValue)
	m.accepted(t, q, batch[0], results[0].Sent)
	m.accepted(t, q, batch[2], results[2].Sent)
}

func (m *machine) receive(t *rapid.T) {
	q := m.pick(t)
	want := engine.Demand{Max: rapid.SampledFrom([]int{1, 1, 2, 3, 10}).Draw(t, "most")}
	hide := q.visibility
	if rapid.Bool().Draw(t, "own timeout") {
		hide = time.Duration(rapid.SampledFrom([]int{0, 1, 10, 43_200}).Draw(t, "timeout")) * time.Second
		want.Visibility = &hide
	}
	_, inFlight, _ := m.ref.counts(q)
	room := modelLimit - inFlight
	got, err := m.e.Receive(t.Context(), q.name, want)
	if room <= 0 && !q.fifo {
		wantCode(t, err, engine.OverLimit)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if q.fifo {
		list := m.ref.receiveOrdered(q, want.Max, hide, room)
		if len(got) != len(list) {
			t.Fatalf("received %v, want %v", numbers(got), numbersOf(list))
		}
		for i, msg := range list {
			m.delivered(t, q, got[i], msg)
		}
		return
	}
	m.receiveAny(t, q, got, min(want.Max, room), hide)
}

// receiveAny checks a receive from a standard queue: any messages may come that are visible and have receives left,
// and as many must as there are and fit. Those without have been met on the way if there was room for more; if not, the
// number of messages that are left tells how many were.
func (m *machine) receiveAny(t *rapid.T, q *refQueue, got []engine.Message, most int, hide time.Duration) {
	var fit, exhausted []*refMessage
	for _, msg := range q.messages {
		if msg.visible(m.ref.now) {
			if q.exhausted(msg) {
				exhausted = append(exhausted, msg)
			} else {
				fit = append(fit, msg)
			}
		}
	}
	if len(got) != min(most, len(fit)) {
		t.Fatalf("received %v, want %d of %v", numbers(got), min(most, len(fit)), numbersOf(fit))
	}
	for _, g := range got {
		i := slices.IndexFunc(fit, func(msg *refMessage) bool { return msg.number == g.Attributes["number"].String })
		if i < 0 {
			t.Fatalf("received %v, want only some of %v, each once", numbers(got), numbersOf(fit))
		}
		m.ref.take(fit[i], hide)
		m.delivered(t, q, g, fit[i])
		fit = slices.Delete(fit, i, i+1)
	}
	if len(exhausted) == 0 {
		return
	}
	gone := len(exhausted)
	if len(got) == most {
		visible, inFlight, delayed, _ := m.e.Depth(q.name)
		gone = len(q.messages) - visible - inFlight - delayed
	}
	slices.SortFunc(exhausted, waited)
	for _, msg := range exhausted[:gone] {
		m.ref.deadLetter(q, msg)
	}
}

// delivered compares one delivery with what is known of its message.
func (m *machine) delivered(t *rapid.T, q *refQueue, got engine.Message, want *refMessage) {
	if want.id == "" {
		m.fresh(t, got.ID)
		want.id = got.ID
	}
	if want.sequence == "" {
		want.sequence = got.SequenceNumber
	}
	source := ""
	if want.source != "" {
		source = arn(want.source)
	}
	have := fmt.Sprint(got.Attributes["number"].String, got.ID, got.Body, got.GroupID, got.DeduplicationID, got.SequenceNumber, got.SourceArn,
		got.ReceiveCount, got.SentAt.UnixNano(), got.FirstReceivedAt.UnixNano())
	wish := fmt.Sprint(want.number, want.id, want.body, want.group, want.dedup, want.sequence, source,
		want.receives, want.sentAt.UnixNano(), want.first.UnixNano())
	if have != wish {
		t.Fatalf("delivered %s, want %s", have, wish)
	}
	for _, h := range m.handles {
		if h.text == got.ReceiptHandle {
			t.Fatalf("handle of %s was given out before, for %s", want.number, h.m.number)
		}
	}
	m.handles = append(m.handles, refHandle{got.ReceiptHandle, q.name, want, want.arrival, want.receives})
}

// state of a handle: its message is there and has not been received since.
func (q *refQueue) state(h refHandle) (there, current bool) {
	there = slices.Contains(q.messages, h.m) && h.m.arrival == h.arrival
	return there, there && h.m.receives == h.receives
}

func (m *machine) handle(t *rapid.T) refHandle {
	if len(m.handles) == 0 {
		t.Skip("no handle yet")
	}
	return rapid.SampledFrom(m.handles).Draw(t, "handle")
}

// deleteCurrent deletes what is in flight: at random that would be rare.
func (m *machine) deleteCurrent(t *rapid.T) {
	m.ref.pass(m.clock.Now())
	var list []refHandle
	for _, h := range m.handles {
		if _, current := m.ref.queues[h.queue].state(h); current && h.m.inFlight(m.ref.now) {
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		t.Skip("nothing in flight")
	}
	h := rapid.SampledFrom(list).Draw(t, "handle")
	if err := m.e.Delete(h.queue, h.text); err != nil {
		t.Fatal(err)
	}
	m.ref.queues[h.queue].remove(h.m)
}

func (m *machine) deleteBatch(t *rapid.T) {
	m.ref.pass(m.clock.Now())
	name := m.handle(t).queue
	q := m.ref.queues[name]
	var texts []string
	var list []refHandle
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		h := m.handle(t)
		texts, list = append(texts, h.text), append(list, h)
	}
	results, err := m.e.DeleteBatch(name, texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range list {
		there, current := q.state(h)
		switch {
		case h.queue != name:
			wantCode(t, asError(results[i]), engine.ReceiptHandleInvalid)
		case there && q.fifo && (!current || !h.m.inFlight(m.ref.now)):
			wantCode(t, asError(results[i]), engine.InvalidParameterValue)
		case results[i] != nil:
			t.Fatalf("delete of %s: %v", h.m.number, results[i])
		case current:
			q.remove(h.m)
		}
	}
}

func (m *machine) changeBatch(t *rapid.T) {
	m.ref.pass(m.clock.Now())
	name := m.handle(t).queue
	q := m.ref.queues[name]
	var changes []engine.Change
	var list []refHandle
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		h := m.handle(t)
		seconds := rapid.SampledFrom([]int{0, 0, 1, 20, 600, 43_200}).Draw(t, "timeout")
		changes, list = append(changes, engine.Change{Handle: h.text, Timeout: time.Duration(seconds) * time.Second}), append(list, h)
	}
	results, err := m.e.ChangeVisibilityBatch(name, changes)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range list {
		_, current := q.state(h)
		until := m.ref.now.Add(changes[i].Timeout)
		switch {
		case h.queue != name:
			wantCode(t, asError(results[i]), engine.ReceiptHandleInvalid)
		case !current:
			wantCode(t, asError(results[i]), engine.InvalidParameterValue)
		case !h.m.inFlight(m.ref.now):
			wantCode(t, asError(results[i]), engine.MessageNotInflight)
		case until.After(h.m.last.Add(engine.MaximumVisibility)):
			wantCode(t, asError(results[i]), engine.InvalidParameterValue)
		case results[i] != nil:
			t.Fatalf("change of %s: %v", h.m.number, results[i])
		default:
			h.m.visibleAt = until
		}
	}
}
