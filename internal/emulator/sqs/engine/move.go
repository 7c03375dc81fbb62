package engine

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// The states of a move task. Source: Amazon SQS API Reference, ListMessageMoveTasks.
const (
	TaskRunning   = "RUNNING"
	TaskCompleted = "COMPLETED"
	TaskCancelled = "CANCELLED"
	TaskFailed    = "FAILED"
)

// MaximumMoveRate is the highest number of messages that a task moves in a second, and what it
// moves when no rate is given.
const MaximumMoveRate = 500

const (
	tasksKept    = 10 // per source queue
	longestMove  = 36 * time.Hour
	noSuchQueue  = "AWS.SimpleQueueService.NonExistentQueue"
	unknownOwner = "CouldNotDetermineMessageSource"
	ranTooLong   = "MaximumTaskDurationExceeded"
)

// MoveTask describes a task that moves messages out of a dead-letter queue.
type MoveTask struct {
	Handle      string // set only while it runs
	Status      string
	SourceArn   string
	Destination string // ARN; empty: each message goes back to where it came from
	Rate        int    // messages a second; 0: not given
	Moved       int
	ToMove      int // counted at the start
	Failure     string
	Started     time.Time
}

type task struct {
	id      string
	number  uint64 // order of the starts, which may share a time
	source  string // ARN, like destination
	dest    string
	rate    int
	status  string
	failure string
	moved   int
	toMove  int
	started time.Time
	nextAt  time.Time // when the next message is moved
}

// StartMove starts moving the messages of a dead-letter queue to the destination or, when that is
// empty, each to its own source, oldest first, rate a second (0: as fast as it goes).
func (e *Engine) StartMove(source, destination string, rate int) (handle string, err error) {
	err = e.do(func(now time.Time) error {
		q := e.byArn(source)
		if q == nil {
			return refuse(ResourceNotFound, "The resource that you specified for the SourceArn parameter doesn't exist.")
		}
		e.advance(q, now)
		if len(e.sourcesOf(q)) == 0 {
			return refuse(InvalidParameterValue, "Source queue must be configured as a Dead Letter Queue.")
		}
		if destination != "" {
			target := e.byArn(destination)
			switch {
			case target == nil:
				return refuse(ResourceNotFound, "The resource that you specified for the DestinationArn parameter doesn't exist.")
			case target == q:
				return refuse(InvalidParameterValue, "Source and destination queue must not be the same.")
			case target.cfg.fifo != q.cfg.fifo:
				return refuse(InvalidParameterValue, "Source and destination queue must be of the same type.")
			}
		}
		if slices.ContainsFunc(e.tasks, func(t *task) bool { return t.source == source && t.status == TaskRunning }) {
			return refuse(InvalidParameterValue, "There is already a task running. "+
				"Only one active task is allowed for a source queue arn at a given time.")
		}
		t := &task{
			id: uuid.NewString(), number: e.next(), source: source, dest: destination, rate: rate, status: TaskRunning,
			toMove: q.visible(), started: now,
		}
		t.nextAt = now.Add(t.pace())
		e.tasks = append(e.tasks, t)
		e.store.putTask(e, t)
		e.forgetTasks(source, tasksKept)
		for _, other := range e.queues {
			other.look() // waiting receives have to know when it goes on
		}
		handle = t.handle()
		return nil
	})
	return handle, err
}

// forgetTasks keeps the newest ones of the source queue, at most so many.
func (e *Engine) forgetTasks(source string, most int) {
	kept := 0
	for i := len(e.tasks) - 1; i >= 0; i-- {
		if e.tasks[i].source != source {
			continue
		}
		if kept++; kept > most {
			e.store.deleteTask(e.tasks[i])
			e.tasks = slices.Delete(e.tasks, i, i+1)
		}
	}
}

// CancelMove stops a running task and tells how many messages it has moved; they stay where they are.
func (e *Engine) CancelMove(handle string) (moved int, err error) {
	err = e.do(func(time.Time) error {
		id, source, ok := parseTaskHandle(handle)
		if !ok {
			return refuse(InvalidParameterValue, "Value for parameter TaskHandle is invalid.")
		}
		if e.byArn(source) == nil {
			return refuse(ResourceNotFound, "The resource that you specified for the SourceArn parameter doesn't exist.")
		}
		i := slices.IndexFunc(e.tasks, func(t *task) bool { return t.id == id && t.source == source })
		if i < 0 {
			return refuse(ResourceNotFound, "Task does not exist.")
		}
		t := e.tasks[i]
		if t.status != TaskRunning {
			return refuse(UnsupportedOperation, "Only a running task can be cancelled; this one is %s.", t.status)
		}
		t.status, moved = TaskCancelled, t.moved
		e.store.putTask(e, t)
		return nil
	})
	return moved, err
}

// ListMoves returns the source queue's tasks, newest first, at most limit.
func (e *Engine) ListMoves(source string, limit int) ([]MoveTask, error) {
	var out []MoveTask
	err := e.do(func(time.Time) error {
		if e.byArn(source) == nil {
			return refuse(ResourceNotFound, "The resource that you specified for the SourceArn parameter doesn't exist.")
		}
		for i := len(e.tasks) - 1; i >= 0 && len(out) < limit; i-- {
			if t := e.tasks[i]; t.source == source {
				out = append(out, t.describe())
			}
		}
		return nil
	})
	return out, err
}

func (t *task) describe() MoveTask {
	d := MoveTask{
		Status: t.status, SourceArn: t.source, Destination: t.dest, Rate: t.rate,
		Moved: t.moved, ToMove: t.toMove, Failure: t.failure, Started: t.started,
	}
	if t.status == TaskRunning {
		d.Handle = t.handle()
	}
	return d
}

type taskHandle struct {
	TaskID    string `json:"taskId"`
	SourceArn string `json:"sourceArn"`
}

func (t *task) handle() string {
	b, _ := json.Marshal(taskHandle{t.id, t.source})
	return base64.StdEncoding.EncodeToString(b)
}

func parseTaskHandle(handle string) (id, source string, ok bool) {
	b, err := base64.StdEncoding.DecodeString(handle)
	if err != nil {
		return "", "", false
	}
	var h taskHandle
	if json.Unmarshal(b, &h) != nil || h.TaskID == "" || !strings.HasPrefix(h.SourceArn, "arn:") {
		return "", "", false
	}
	return h.TaskID, h.SourceArn, true
}

// pace is the time between two messages.
func (t *task) pace() time.Duration {
	rate := t.rate
	if rate == 0 {
		rate = MaximumMoveRate
	}
	return time.Second / time.Duration(rate)
}

// settle makes up for what the running tasks have done until now, in the order of its times.
func (e *Engine) settle(now time.Time) {
	for {
		var next *task
		for _, t := range e.tasks {
			if t.status == TaskRunning && !t.nextAt.After(now) && (next == nil || t.nextAt.Before(next.nextAt)) {
				next = t
			}
		}
		if next == nil {
			return
		}
		e.step(next)
		e.store.putTask(e, next)
	}
}

// step moves one message, or ends the task.
func (e *Engine) step(t *task) {
	now := t.nextAt
	t.nextAt = now.Add(t.pace())
	fail := func(reason string) { t.status, t.failure = TaskFailed, reason }

	q := e.byArn(t.source)
	if q == nil {
		fail(noSuchQueue)
		return
	}
	if now.Sub(t.started) > longestMove {
		fail(ranTooLong)
		return
	}
	e.advance(q, now)
	m := q.oldest()
	if m == nil {
		t.status = TaskCompleted
		return
	}
	to := t.dest
	if to == "" {
		to = m.source
	}
	if to == "" {
		fail(unknownOwner)
		return
	}
	target := e.byArn(to)
	if target == nil || target.cfg.fifo != q.cfg.fifo {
		fail(noSuchQueue)
		return
	}
	e.advance(target, now)
	e.redrive(q, m, target, now)
	t.moved++
	if q.oldest() == nil {
		t.status = TaskCompleted
	}
}

// oldest returns the message that has been deliverable for the longest time, fair or not.
func (q *queue) oldest() *message {
	g, ok := q.ready.top()
	switch {
	case !ok:
		return nil
	case q.cfg.fifo:
		return g.order.Front().Value.(*message)
	}
	m, _ := g.avail.top()
	return m
}

// redrive moves the message as a new one: with an id, an enqueue time and a receive count of its own.
// Source: Amazon SQS Developer Guide, "Configuring a dead-letter queue redrive".
func (e *Engine) redrive(q *queue, m *message, target *queue, now time.Time) {
	e.remove(q, m)
	m.id, m.source = uuid.NewString(), ""
	m.receives, m.firstReceived, m.lastReceived = 0, time.Time{}, time.Time{}
	e.enqueue(target, m, now, target.cfg.delay)
}
