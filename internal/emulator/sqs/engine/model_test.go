package engine_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
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
