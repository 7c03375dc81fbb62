// Package dlq reads what lies in dead-letter queues: whose task a message is, why it lies there, and how many lie there
// for the same reason. It only looks: nothing in it deletes a message or changes a task.
package dlq

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Codes under which a dead letter is reported whose task has not failed, or whose record does not tell. All others are
// the codes of failures, as in the tasks' records.
const (
	CodeSucceeded   = "ALREADY_SUCCEEDED"   // a redrive would be acknowledged without effect
	CodeInProgress  = "BEING_WORKED_ON"     // a worker holds the task
	CodeRedriven    = "ALREADY_REDRIVEN"    // a copy went back to the queue, but this message was not deleted
	CodeMovedOn     = "UNDER_NEWER_MESSAGE" // the task has come back, and this is an older message of it
	CodeUnavailable = "RECORD_UNAVAILABLE"  // the record could not be read or written
)

// Letter is a message in a dead-letter queue. The body is not kept: a thousand of them may be a gigabyte.
type Letter struct {
	MessageID string
	SentAt    time.Time // zero: unknown
	ID        task.ID
	Type      string // "" unless registered: a message that is no task may say anything there
	Written   string // the type as the message has it, "" when it is too long to be one
	// Named says that the message itself says which task it is. If it does not, the id is made of the message's own id
	// and send time, and a copy of the message is another task.
	Named bool
	// Failure is why it lies there as far as the message itself tells.
	Failure task.Failure

	// timed says that the id was made of the send time, which a move between FIFO queues starts anew.
	timed bool

	Code, Reason string // in the end; see Judge
}

// Read makes a letter of a message that was received with all of its attributes.
func Read(tasks *task.Registry, m types.Message, fifo bool) *Letter {
	l := &Letter{MessageID: aws.ToString(m.MessageId)}
	if ms, err := strconv.ParseInt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
		l.SentAt = time.UnixMilli(ms)
	}
	msg, err := tasks.Decode([]byte(aws.ToString(m.Body)), l.MessageID, l.SentAt)
	l.ID = msg.ID
	const longestType = 60
	if len(msg.Task) <= longestType {
		l.Written = msg.Task
	}
	if _, known := tasks.Lookup(msg.Task); known {
		l.Type = msg.Task
	}
	l.Failure = task.Failure{
		Code:    task.CodeDeadLettered,
		Message: "the message came to the dead-letter queue without ever reaching a worker",
	}
	if err != nil {
		l.Failure = task.FailureOf(err)
	}
	made := msg.ID == task.IDFromMessage(msg.Thread, l.MessageID, l.SentAt)
	l.Named, l.timed = !made, made && fifo
	return l
}

// DeadLetter is what the task's record has to say of the letter, under the id that [Letter.Find] gave.
func (l *Letter) DeadLetter(id task.ID) checkpoint.DeadLetter {
	return checkpoint.DeadLetter{ID: id, Task: l.Written, MessageID: l.MessageID, SentAt: l.SentAt, Reason: l.Failure}
}

// Records is what is called of [checkpoint.Store].
type Records interface {
	Record(ctx context.Context, id task.ID) (checkpoint.Record, error)
	FindByMessage(ctx context.Context, thread, messageID string, from, to time.Time) (checkpoint.Record, error)
}

// A message lives up to 14 days in a queue and, when that is FIFO, 14 more in its dead-letter queue.
// Source: Amazon SQS Developer Guide, "Using dead-letter queues in Amazon SQS".
const longestLife = 28 * 24 * time.Hour

// Find gives the id under which the letter's task is or will be recorded. Of a message whose send time has changed since
// a worker recorded it that is not the id that it would have now.
func (l *Letter) Find(ctx context.Context, store Records, now time.Time) (task.ID, error) {
	if !l.timed {
		return l.ID, nil
	}
	// Most often it is there, from an earlier look, and one read is cheaper than four weeks of a thread's history.
	_, err := store.Record(ctx, l.ID)
	if !errors.Is(err, checkpoint.ErrNotFound) {
		return l.ID, err
	}
	rec, err := store.FindByMessage(ctx, l.ID.Thread(), l.MessageID, now.Add(-longestLife), now)
	switch {
	case err == nil:
		return rec.TaskID, nil
	case !errors.Is(err, checkpoint.ErrNotFound):
		return "", err
	}
	return l.ID, nil
}

// Judge says what the task's record makes of the letter. The record is as [checkpoint.Store.DeadLettered] or
// [checkpoint.Store.AsDeadLettered] gave it.
func (l *Letter) Judge(rec checkpoint.Record, now time.Time) {
	l.ID = rec.TaskID
	l.Code, l.Reason = l.why(rec, now)
}

func (l *Letter) why(rec checkpoint.Record, now time.Time) (code, reason string) {
	redrive, begun := rec.RedriveOf(l.MessageID)
	switch {
	case begun && rec.Redriven(redrive):
		return CodeRedriven, "a copy of the message went back to the queue, but the redrive was interrupted before it deleted the message; another one deletes it"
	case rec.Status == checkpoint.Succeeded:
		return CodeSucceeded, "the task has already succeeded; a redrive acknowledges the message without effect"
	case rec.Live(now):
		return CodeInProgress, "a worker is at the task"
	case rec.Status != checkpoint.Failed:
		return CodeMovedOn, "the task has come back under a newer message since"
	case rec.Error == nil:
		return task.CodeDeadLettered, "the record gives no reason"
	}
	return rec.Error.Code, rec.Error.Message
}

// Unavailable says that the letter's record could not be read or written.
func (l *Letter) Unavailable() {
	l.Code, l.Reason = CodeUnavailable, "the task's record could not be read or written; it is tried again"
}
