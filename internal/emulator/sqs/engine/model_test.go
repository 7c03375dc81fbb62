package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"pgregory.net/rapid"

	"agentworker/internal/emulator/sqs/engine"
)

// TestEngineDoesWhatTheReferenceSays drives an engine and the reference through the same random operations, restarts among
// them, and compares every answer and every count. Of a FIFO queue and a move task the reference knows the exact order; of
// a standard queue it says which messages may come and how many have to.
func TestEngineDoesWhatTheReferenceSays(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo=%t", fifo), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rapid.Check(t, func(rt *rapid.T) {
				m := newMachine(rt, dir, fifo)
				defer m.close()
				rt.Repeat(map[string]func(*rapid.T){
					"":                 m.check,
					"send":             m.send,
					"send batch":       m.sendBatch,
					"send large batch": m.sendTooLarge,
					"receive":          m.receive,
					"receive more":     m.receive,
					"delete":           m.deleteBatch,
					"delete current":   m.deleteCurrent,
					"change":           m.changeBatch,
					"let time pass":    m.advance,
					"let time pass on": m.advance,
					"set attributes":   m.setAttributes,
					"purge":            m.purge,
					"start move":       m.startMove,
					"cancel move":      m.cancelMove,
					"restart":          m.restart,
				})
			})
		})
	}
}

// modelLimit is small enough for the limit on messages in flight to be met.
const modelLimit = 7

type machine struct {
	e       *engine.Engine
	opts    engine.Options
	clock   *clockwork.FakeClock
	ref     *reference
	names   []string // source, dead-letter queue
	sent    int
	ids     map[string]bool
	handles []refHandle
	moves   []string // handles of tasks, as ref.tasks
}

type refHandle struct {
	text     string
	queue    string
	m        *refMessage
	arrival  int
	receives int
}

func newMachine(t *rapid.T, dir string, fifo bool) *machine {
	dir, err := os.MkdirTemp(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{clock: clockwork.NewFakeClockAt(time.Unix(1_800_000_000, 0)), ids: map[string]bool{}}
	m.opts = engine.Options{Clock: m.clock, Dir: dir, InFlightLimit: modelLimit}
	m.e, err = engine.Open(m.opts)
	if err != nil {
		t.Fatal(err)
	}
	m.ref = &reference{now: m.clock.Now(), queues: map[string]*refQueue{}}
	m.names = []string{"work", "dead"}
	attributes := map[string]string{"VisibilityTimeout": "30", "MaximumMessageSize": "1024"}
	if fifo {
		m.names = []string{"work.fifo", "dead.fifo"}
		attributes["FifoQueue"] = "true"
	}
	for _, name := range m.names {
		q := &refQueue{name: name, fifo: fifo, visibility: 30 * time.Second}
		q.retention = time.Duration(rapid.SampledFrom([]int{60, 90, 345_600}).Draw(t, "retention")) * time.Second
		attributes["MessageRetentionPeriod"] = strconv.Itoa(int(q.retention.Seconds()))
		if err := m.e.CreateQueue(name, attributes, nil); err != nil {
			t.Fatal(err)
		}
		m.ref.queues[name] = q
	}
	m.redrive(t)
	return m
}

func (m *machine) close() {
	_ = m.e.Close()
	_ = os.RemoveAll(m.opts.Dir)
}

func arn(name string) string { return "arn:aws:sqs:us-east-1:000000000000:" + name }

// pick chooses a queue, mostly the first, and brings the reference up to now.
func (m *machine) pick(t *rapid.T) *refQueue {
	m.ref.pass(m.clock.Now())
	return m.ref.queues[m.names[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "queue")]]
}

func (m *machine) check(t *rapid.T) {
	m.ref.pass(m.clock.Now())
	for _, name := range m.names {
		visible, inFlight, delayed := m.ref.counts(m.ref.queues[name])
		gotVisible, gotInFlight, gotDelayed, ok := m.e.Depth(name)
		if !ok || gotVisible != visible || gotInFlight != inFlight || gotDelayed != delayed {
			t.Fatalf("%s holds %d visible, %d in flight, %d delayed; want %d, %d, %d",
				name, gotVisible, gotInFlight, gotDelayed, visible, inFlight, delayed)
		}
	}
	dead := m.names[1]
	got, err := m.e.ListMoves(arn(dead), 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range got {
		want := m.ref.tasks[len(m.ref.tasks)-1-i]
		if g.Status != want.status || g.Moved != want.moved || g.ToMove != want.toMove {
			t.Fatalf("task %d is %s after %d of %d; want %s after %d of %d", i, g.Status, g.Moved, g.ToMove, want.status, want.moved, want.toMove)
		}
	}
	if len(got) != min(len(m.ref.tasks), 10) {
		t.Fatalf("%d tasks listed, want %d", len(got), min(len(m.ref.tasks), 10))
	}
}

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

func (m *machine) advance(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Second, time.Second, 10 * time.Second, 29 * time.Second, 30 * time.Second, 30 * time.Second, time.Minute,
		engine.DeduplicationInterval - time.Second, engine.DeduplicationInterval, 12 * time.Hour, 4 * 24 * time.Hour,
	}).Draw(t, "time")
	m.clock.Advance(d)
}

func (m *machine) setAttributes(t *rapid.T) {
	q := m.pick(t)
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	changes := map[string]string{}
	number := func(name string, values ...int) int {
		n := rapid.SampledFrom(values).Draw(t, name)
		changes[name] = strconv.Itoa(n)
		return n
	}
	before := q.delay
	choices := []string{"visibility", "delay", "retention", "redrive", "redrive", "redrive"}
	if q.fifo {
		choices = append(choices, "content", "scope")
	}
	switch rapid.SampledFrom(choices).Draw(t, "attribute") {
	case "visibility":
		q.visibility = seconds(number("VisibilityTimeout", 0, 5, 30))
	case "delay":
		q.delay = seconds(number("DelaySeconds", 0, 0, 3, 60))
	case "retention":
		q.retention = seconds(number("MessageRetentionPeriod", 60, 345_600, 1_209_600))
	case "redrive":
		m.redrive(t)
		return
	case "content":
		q.content = rapid.Bool().Draw(t, "content")
		changes["ContentBasedDeduplication"] = strconv.FormatBool(q.content)
	case "scope":
		q.perGroup = rapid.Bool().Draw(t, "per group")
		changes["DeduplicationScope"] = map[bool]string{true: "messageGroup", false: "queue"}[q.perGroup]
	}
	if err := m.e.SetAttributes(q.name, changes); err != nil {
		t.Fatal(err)
	}
	if q.fifo && q.delay != before {
		for _, msg := range q.messages {
			if msg.receives == 0 {
				msg.visibleAt = msg.sentAt.Add(q.delay)
			}
		}
	}
}

// redrive sets or removes the redrive policy.
func (m *machine) redrive(t *rapid.T) {
	q := m.ref.queues[m.names[0]]
	q.dead, q.most = nil, rapid.IntRange(0, 3).Draw(t, "maxReceiveCount")
	policy := ""
	if q.most > 0 {
		q.dead = m.ref.queues[m.names[1]]
		policy = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn(q.dead.name), q.most)
	}
	if err := m.e.SetAttributes(q.name, map[string]string{"RedrivePolicy": policy}); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) purge(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("rarely")
	}
	q := m.pick(t)
	err := m.e.PurgeQueue(q.name)
	if !q.purged.IsZero() && m.ref.now.Before(q.purged.Add(time.Minute)) {
		wantCode(t, err, engine.PurgeQueueInProgress)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	q.purged, q.messages = m.ref.now, nil
}

func (m *machine) startMove(t *rapid.T) {
	m.ref.pass(m.clock.Now())
	source, dest := m.ref.queues[m.names[1]], (*refQueue)(nil)
	destination := ""
	if rapid.Bool().Draw(t, "destination") {
		dest = m.ref.queues[m.names[0]]
		destination = arn(dest.name)
	}
	rate := rapid.SampledFrom([]int{0, 1, 2, 500}).Draw(t, "rate")
	handle, err := m.e.StartMove(arn(source.name), destination, rate)
	running := slices.ContainsFunc(m.ref.tasks, func(task *refTask) bool { return task.status == engine.TaskRunning })
	if m.ref.queues[m.names[0]].dead == nil || running {
		wantCode(t, err, engine.InvalidParameterValue)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	pace := time.Second / 500
	if rate > 0 {
		pace = time.Second / time.Duration(rate)
	}
	visible, _, _ := m.ref.counts(source)
	m.moves = append(m.moves, handle)
	m.ref.tasks = append(m.ref.tasks, &refTask{
		source: source, dest: dest, pace: pace, next: m.ref.now.Add(pace), status: engine.TaskRunning, toMove: visible,
	})
}

func (m *machine) cancelMove(t *rapid.T) {
	m.ref.pass(m.clock.Now())
	if len(m.moves) == 0 {
		t.Skip("no task yet")
	}
	i := len(m.moves) - 1 - rapid.IntRange(0, min(len(m.moves), 2)-1).Draw(t, "task")
	moved, err := m.e.CancelMove(m.moves[i])
	task := m.ref.tasks[i]
	if task.status != engine.TaskRunning {
		wantCode(t, err, engine.UnsupportedOperation)
		return
	}
	if err != nil || moved != task.moved {
		t.Fatalf("cancelled after %d messages, error %v; want %d", moved, err, task.moved)
	}
	task.status = engine.TaskCancelled
}

func (m *machine) restart(t *rapid.T) {
	if err := m.e.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.e, err = engine.Open(m.opts); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *rapid.T, err error, code engine.Code) {
	var refusal *engine.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		t.Fatalf("error = %v, want %s", err, code)
	}
}

// asError keeps a nil pointer from becoming an error that is not nil.
func asError(err *engine.Error) error {
	if err == nil {
		return nil
	}
	return err
}

func numbers(list []engine.Message) (out []string) {
	for _, m := range list {
		out = append(out, m.Attributes["number"].String)
	}
	return out
}

func numbersOf(list []*refMessage) (out []string) {
	for _, m := range list {
		out = append(out, m.number)
	}
	return out
}
