package dlqalarm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Codes under which a dead letter is reported whose task has not failed, or whose record does not tell. All others are
// the codes of failures, as in the tasks' records.
const (
	CodeSucceeded   = "ALREADY_SUCCEEDED"   // a redrive would be acknowledged without effect
	CodeInProgress  = "BEING_WORKED_ON"     // a worker holds the task
	CodeMovedOn     = "UNDER_NEWER_MESSAGE" // the task was redriven, and this is an older message of it
	CodeUnavailable = "RECORD_UNAVAILABLE"  // the record could not be read or written
)

// letter is a message in a dead-letter queue. The body is not kept: a thousand of them may be a gigabyte.
type letter struct {
	messageID string
	sentAt    time.Time // zero: unknown
	id        task.ID
	taskType  string // "" unless registered: a message that is no task may say anything there
	written   string // the type as the message has it, "" when it is too long to be one
	// failure is why it lies there as far as the message itself tells.
	failure task.Failure

	// timed says that the id was made of the send time, which a move between FIFO queues starts anew.
	timed bool

	code, reason string // in the end
}

func (h *Handler) read(m types.Message, fifo bool) *letter {
	l := &letter{messageID: aws.ToString(m.MessageId)}
	if ms, err := strconv.ParseInt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
		l.sentAt = time.UnixMilli(ms)
	}
	msg, err := h.Tasks.Decode([]byte(aws.ToString(m.Body)), l.messageID, l.sentAt)
	l.id = msg.ID
	const longestType = 60
	if len(msg.Task) <= longestType {
		l.written = msg.Task
	}
	if _, known := h.Tasks.Lookup(msg.Task); known {
		l.taskType = msg.Task
	}
	l.failure = task.Failure{
		Code:    task.CodeDeadLettered,
		Message: "the message came to the dead-letter queue without ever reaching a worker",
	}
	if err != nil {
		l.failure = task.FailureOf(err)
	}
	if fifo {
		l.timed = msg.ID == task.IDFromMessage(msg.Thread, l.messageID, l.sentAt)
	}
	return l
}

const (
	atOnce = 8 // records being written
	// A message lives up to 14 days in a queue and, when that is FIFO, 14 more in its dead-letter queue.
	// Source: Amazon SQS Developer Guide, "Using dead-letter queues in Amazon SQS".
	longestLife = 28 * 24 * time.Hour
)

// record makes the tasks' records say that they have failed, and learns from them why. Its error says for how many that
// could not be done.
func (h *Handler) record(ctx context.Context, t times, looks []*look) error {
	ctx, cancel := context.WithDeadline(ctx, t.record)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(atOnce)
	failed := make(chan error, len(looks)*mostLetters+len(looks)*perCall)
	for _, look := range looks {
		for _, l := range look.letters {
			group.Go(func() error {
				rec, err := h.bury(ctx, l)
				switch {
				case err != nil:
					h.Logger.ErrorContext(ctx, "dead letter not recorded",
						"task_id", l.id, "message_id", l.messageID, "error", err)
					l.code, l.reason = CodeUnavailable, "the task's record could not be read or written; it is tried again"
					failed <- err
				default:
					l.id = rec.TaskID
					l.code, l.reason = h.why(rec)
				}
				return nil
			})
		}
	}
	_ = group.Wait() // nobody gives an error
	if n := len(failed); n > 0 {
		return fmt.Errorf("%d dead letters could not be recorded, one of them because: %w", n, <-failed)
	}
	return nil
}

// bury finds the letter's record, or makes one, and marks it.
func (h *Handler) bury(ctx context.Context, l *letter) (checkpoint.Record, error) {
	id := l.id
	if l.timed {
		var err error
		if id, err = h.original(ctx, l); err != nil {
			return checkpoint.Record{}, err
		}
	}
	return h.Store.DeadLettered(ctx, checkpoint.DeadLetter{
		ID: id, Task: l.written, MessageID: l.messageID, SentAt: l.sentAt, Reason: l.failure,
	})
}

// original is the id under which a worker has recorded a message whose send time has changed since; if no worker
// has, it is the one made of the send time as it is now.
func (h *Handler) original(ctx context.Context, l *letter) (task.ID, error) {
	// Most often it is there, from an earlier look, and one read is cheaper than four weeks of a thread's history.
	_, err := h.Store.Record(ctx, l.id)
	if !errors.Is(err, checkpoint.ErrNotFound) {
		return l.id, err
	}
	now := h.Now()
	rec, err := h.Store.FindByMessage(ctx, l.id.Thread(), l.messageID, now.Add(-longestLife), now)
	switch {
	case err == nil:
		return rec.TaskID, nil
	case !errors.Is(err, checkpoint.ErrNotFound):
		return "", err
	}
	return l.id, nil
}

// why says what the record makes of the letter.
func (h *Handler) why(rec checkpoint.Record) (code, reason string) {
	switch {
	case rec.Status == checkpoint.Succeeded:
		return CodeSucceeded, "the task has already succeeded; a redrive acknowledges the message without effect"
	case rec.Live(h.Now()):
		return CodeInProgress, "a worker is at the task"
	case rec.Status != checkpoint.Failed:
		return CodeMovedOn, "the task has come back under a newer message since"
	case rec.Error == nil:
		return task.CodeDeadLettered, "the record gives no reason"
	}
	return rec.Error.Code, rec.Error.Message
}
