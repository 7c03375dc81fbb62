// Package dlqalarm looks into dead-letter queues, makes the tasks that lie there say why they failed, and tells the
// operators. It only looks: nothing in it can delete a message, and moving one back is a person's decision.
package dlqalarm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// Queue is a dead-letter queue.
type Queue struct {
	URL string
	// Alarm is the name of the alarm on the queue's depth, which is also the heading in the runbook; empty: the
	// queue's name, without ".fifo", and "-depth".
	Alarm string
}

func (q Queue) name() string { return dlq.Name(q.URL) }

func (q Queue) alarm() string {
	if q.Alarm != "" {
		return q.Alarm
	}
	return strings.TrimSuffix(q.name(), dlq.FIFOSuffix) + "-depth"
}

// Publisher is what is called of the SNS client.
type Publisher interface {
	Publish(context.Context, *sns.PublishInput, ...func(*sns.Options)) (*sns.PublishOutput, error)
}

// Store is what is called of [checkpoint.Store].
type Store interface {
	dlq.Records
	DeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error)
	ReserveKey(ctx context.Context, k checkpoint.Key) (existing checkpoint.Key, reserved bool, err error)
	KeySent(ctx context.Context, hash, messageID string) error
	Sweep(context.Context) (checkpoint.Sweep, error)
	Swept(context.Context, checkpoint.Sweep) error
	Unfinished(ctx context.Context, before time.Time, from checkpoint.SweepKey) (records []checkpoint.Record, next checkpoint.SweepKey, err error)
	GiveUp(ctx context.Context, rec checkpoint.Record, reason task.Failure) (given bool, err error)
}

// Config is what a [Handler] works with. Everything is required unless it says otherwise.
type Config struct {
	Queues   []Queue        // one or more
	Sources  []string       // the URLs of the queues that feed the worker
	Tasks    *task.Registry // to read the messages
	Store    Store
	SQS      dlq.API
	Topic    Publisher
	TopicARN string
	Metrics  *telemetry.Metrics // nil: none
	Logger   *slog.Logger       // hears ids and codes, never a reason or a body; nil: slog.Default
	// Now is the clock for ages and for finding records; nil: the system's. Deadlines are the context's.
	Now func() time.Time
}

// Handler is the function. It is safe for concurrent use.
type Handler struct{ Config }

// New makes a handler.
func New(c Config) *Handler {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Handler{c}
}

// Handle looks into the queues once, whatever has called it: a CloudWatch alarm, a schedule or a person. An alarm that
// is about some of the queues only makes it look into those.
//
// It publishes when there is a message, or a reason of one, that was not in an earlier notification of about the last
// day, and when an alarm has ended and the queue is in fact empty.
//
// The schedule also has it look for tasks that nothing will run any more: see [Summary.Lost].
//
// The error says what could not be read, recorded or published; all the rest was done nevertheless. Another call
// makes up for it and repeats nothing.
func (h *Handler) Handle(ctx context.Context, payload json.RawMessage) (Summary, error) {
	event := ParseEvent(payload)
	times := schedule(ctx)
	var search *search
	var searchErr error
	if event.Kind == KindSchedule {
		search, searchErr = h.searchDue(ctx, times)
	}
	looks := h.look(ctx, times, h.concerned(event))
	recordErr := h.record(ctx, times, looks)
	var lost []checkpoint.Record
	var sweepErr error
	if search != nil {
		lost, sweepErr = h.sweep(ctx, times, *search, looks)
	}

	summary := summarize(event, looks)
	summary.Lost = ids(lost)
	h.report(ctx, summary)
	published, publishErr := h.tell(ctx, event, looks, summary)
	toldLost, lostErr := h.tellLost(ctx, lost)
	summary.Published = published || toldLost

	problems := []error{searchErr, recordErr, sweepErr, publishErr, lostErr}
	for _, l := range looks {
		problems = append(problems, l.err)
	}
	return summary, errors.Join(problems...)
}

// concerned are the queues that the event is about; all, if it does not name any of them.
func (h *Handler) concerned(e Event) []Queue {
	named := slices.DeleteFunc(slices.Clone(h.Queues), func(q Queue) bool { return !slices.Contains(e.Alarm.Queues, q.name()) })
	if len(named) > 0 {
		return named
	}
	return h.Queues
}

// times divide what is left of the invocation.
type times struct {
	look   time.Time // messages are received until then
	record time.Time // given back and recorded until then
	sweep  time.Time // unfinished tasks are given up until then; the rest is for publishing
}

const (
	longestLook = time.Minute // nothing should hide a dead letter for longer
	noDeadline  = time.Minute // what an invocation without a deadline may take
)

func schedule(ctx context.Context) times {
	now := time.Now()
	left := noDeadline
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	look := min(left/2, longestLook)
	return times{look: now.Add(look), record: now.Add(look + left*2/10), sweep: now.Add(look + left*3/10)}
}

func (h *Handler) look(ctx context.Context, t times, queues []Queue) []*look {
	looks := make([]*look, len(queues))
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() { looks[i] = h.walk(ctx, t, q) })
	}
	wg.Wait()
	return looks
}

// report writes what was seen to the log and to the metrics.
func (h *Handler) report(ctx context.Context, s Summary) {
	for _, q := range s.Queues {
		h.Logger.InfoContext(ctx, "looked into dead-letter queue",
			"queue", q.Name, "seen", q.Seen, "approximate", q.Approximate, "complete", q.Complete)
		for _, g := range q.Groups {
			h.Logger.InfoContext(ctx, "dead letters",
				"queue", q.Name, "task", g.Task, "code", g.Code, "count", g.Count, "task_ids", fmt.Sprint(g.TaskIDs))
			h.Metrics.Add(telemetry.DeadLetters, g.Task, float64(g.Count))
		}
	}
	if err := h.Metrics.Flush(); err != nil {
		h.Logger.WarnContext(ctx, "metrics not written", "error", err)
	}
}
