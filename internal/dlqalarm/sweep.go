package dlqalarm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// A task that is neither queued nor being worked on would look unfinished for ever: its message has expired or was purged, or
// submit died between the record and the message. The sweep finds such tasks by their records, whose last change must be
// older than any delivery can be.
const (
	// sweepEvery is how long after the end of the table the search begins anew: it reads everything there is.
	sweepEvery = time.Hour
	// sweepPages bounds what one call reads, at up to 1 MB a page. A table of 10 GB is searched within a week, which is how long
	// messages live.
	sweepPages = 8
	// sweepSpare is added to what a delivery may take: SQS's counts lag, and clocks differ.
	sweepSpare = time.Hour
	// Source: Amazon SQS Developer Guide, "Amazon SQS delay queues".
	longestDelay = 15 * time.Minute
)

// search is a part of a sweep that is to be done.
type search struct {
	at      checkpoint.Sweep // where it goes on
	feeding sources
}

// searchDue gives nil when the last sweep was not long ago.
//
// What feeds the worker is counted here, before the dead-letter queues are looked at: a message that is dead-lettered in
// between is then counted or seen, and not neither.
func (h *Handler) searchDue(ctx context.Context, t times) (*search, error) {
	ctx, cancel := context.WithDeadline(ctx, t.look)
	defer cancel()
	at, err := h.Store.Sweep(ctx)
	if err != nil || (at.Next == checkpoint.SweepKey{} && h.Now().Sub(at.Ended) < sweepEvery) {
		return nil, err
	}
	feeding, err := h.sources(ctx)
	if err != nil {
		return nil, err
	}
	return &search{at, feeding}, nil
}

// sweep gives up the tasks that no message will bring to a worker any more, and returns them.
func (h *Handler) sweep(ctx context.Context, t times, s search, looks []*look) (lost []checkpoint.Record, err error) {
	ctx, cancel := context.WithDeadline(ctx, t.sweep)
	defer cancel()
	at := s.at
	life, err := h.longestDelivery(ctx, s.feeding, looks)
	if err != nil {
		return nil, err
	}
	for range sweepPages {
		if time.Now().After(t.record) {
			break
		}
		page, next, err := h.Store.Unfinished(ctx, h.Now().Add(-life), at.Next)
		if err != nil {
			return lost, err
		}
		given, err := h.giveUp(ctx, page)
		lost = append(lost, given...)
		if err != nil {
			return lost, err
		}
		if at.Next = next; next == (checkpoint.SweepKey{}) {
			at.Ended = h.Now()
			break
		}
	}
	return lost, h.Store.Swept(ctx, at)
}

const (
	retention  = types.QueueAttributeNameMessageRetentionPeriod
	visibility = types.QueueAttributeNameVisibilityTimeout
)

// sources are the queues that feed the worker.
type sources struct {
	lives, hidden time.Duration // the longest that a message is kept, and hidden by a receive
	messages      int           // in all of them
}

func (h *Handler) sources(ctx context.Context) (s sources, err error) {
	counts := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	for _, url := range h.Sources {
		have, err := h.attributes(ctx, url, append(counts, retention, visibility)...)
		if err != nil {
			return s, err
		}
		s.lives = max(s.lives, time.Duration(have[retention])*time.Second)
		s.hidden = max(s.hidden, time.Duration(have[visibility])*time.Second)
		for _, name := range counts {
			s.messages += have[name]
		}
	}
	return s, nil
}

// longestDelivery is how long after its last change a task may still be delivered: as long as a message lives or, when the
// queues held none at all, as long as one may have been hidden before they were counted. A dead letter that the looks have not
// shown may be any task's, and lives on in its queue; so does one whose task's record could not be marked, and still looks
// unfinished.
func (h *Handler) longestDelivery(ctx context.Context, s sources, looks []*look) (time.Duration, error) {
	var dead time.Duration
	for _, l := range looks {
		if l.complete() && !slices.ContainsFunc(l.letters, unrecorded) {
			continue
		}
		have, err := h.attributes(ctx, l.queue.URL, retention)
		if err != nil {
			return 0, err
		}
		dead = max(dead, time.Duration(have[retention])*time.Second)
	}
	if s.messages == 0 && dead == 0 {
		return min(s.lives, max(s.hidden, longestDelay)) + sweepSpare, nil
	}
	return s.lives + dead + sweepSpare, nil
}

func unrecorded(l *dlq.Letter) bool { return l.Code == dlq.CodeUnavailable }

// attributes reads attributes of a queue that are numbers.
func (h *Handler) attributes(ctx context.Context, url string, names ...types.QueueAttributeName) (map[types.QueueAttributeName]int, error) {
	out, err := h.SQS.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return nil, fmt.Errorf("read attributes of %s: %w", url, err)
	}
	have := map[types.QueueAttributeName]int{}
	for _, name := range names {
		if have[name], err = strconv.Atoi(out.Attributes[string(name)]); err != nil {
			return nil, fmt.Errorf("attribute %s of %s: %w", name, url, err)
		}
	}
	return have, nil
}

func (h *Handler) giveUp(ctx context.Context, page []checkpoint.Record) (given []checkpoint.Record, err error) {
	for _, rec := range page {
		ok, err := h.Store.GiveUp(ctx, rec, whyLost(rec))
		if err != nil {
			return given, err
		}
		if ok {
			given = append(given, rec)
			h.Metrics.Count(telemetry.TasksFailed, h.knownType(rec))
			h.Logger.WarnContext(ctx, "task given up: no message is left of it", "task_id", rec.TaskID, "task", h.knownType(rec), "status", rec.Status)
		}
	}
	return given, nil
}

// knownType is the record's type unless it is not registered: a message that is no task may say anything there.
func (h *Handler) knownType(rec checkpoint.Record) string {
	if _, known := h.Tasks.Lookup(rec.Task); !known {
		return ""
	}
	return rec.Task
}

func whyLost(rec checkpoint.Record) task.Failure {
	f := task.Failure{Code: task.CodeMessageLost}
	switch n := len(rec.Attempts); n {
	case 0:
		f.Message = "the task never reached a worker, and no message is left that could bring it to one: it was not sent, has expired, or was purged; submit it again"
	case 1:
		f.Message = "the message was lost after attempt 1: it has expired or was purged; the finished steps are kept; submit the task again"
	default:
		f.Message = fmt.Sprintf("the message was lost after %d attempts: it has expired or was purged; the finished steps are kept; submit the task again", n)
	}
	return f
}

// tellLost publishes which tasks were given up. They are marked by then and will not be found again: if it fails, the error
// says so, and the log has their ids.
func (h *Handler) tellLost(ctx context.Context, lost []checkpoint.Record) (published bool, err error) {
	return h.publish(ctx, Alarm{}, len(lost) > 0, h.composeLost(lost))
}

const mostLost = 100 // that are written out

func (h *Handler) composeLost(lost []checkpoint.Record) notification {
	text := count(len(lost), "task") + " without a message: " + task.CodeMessageLost
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", text, strings.Repeat("=", len(text)))
	b.WriteString("Nothing would have run them any more, so that they were marked as failed. Their messages have expired or were purged, or\n" +
		"were never sent because submit died. Whoever needs them submits them again.\n\n")
	for i, rec := range lost {
		if i == mostLost {
			fmt.Fprintf(&b, "  and %d more\n", len(lost)-mostLost)
			break
		}
		fmt.Fprintf(&b, "  task %s, %s, was %s since %s\n", rec.TaskID, cmp.Or(h.knownType(rec), "no known task type"), rec.Status, rec.UpdatedAt.UTC().Format(time.RFC3339))
	}
	return notification{subject: ascii(text, maxSubject), body: dlq.Cut(b.String(), maxBody)}
}

func ids(records []checkpoint.Record) []task.ID {
	var list []task.ID
	for _, rec := range records {
		list = append(list, rec.TaskID)
	}
	return list
}
