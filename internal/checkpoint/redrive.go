package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/oklog/ulid/v2"
)

// Redrive is a message on its way out of the dead-letter queue: a copy is put on the task's queue, and then the message
// is deleted. The record remembers it, since whoever does that may die in between, and SQS itself does not tell a
// copy from another.
type Redrive struct {
	MessageID string    // of the message in the dead-letter queue
	Code      string    // why it lay there
	At        time.Time // when the copy was about to be sent; of the last try
	Fence     int64     // the record's then: a claim after it is the copy's
	Under     string    // the record's message id then
	To        string    // message id of the copy; "": not known to be on the queue
	Try       string    // tells one try to send the copy from another
}

// ErrChanged says that somebody else has changed the record since it was read.
var ErrChanged = errors.New("the task's record has changed meanwhile")

// RedriveOf gives the redrive of a message, if one has begun.
func (r Record) RedriveOf(messageID string) (Redrive, bool) {
	if i := r.redriveIndex(messageID); i >= 0 {
		return r.Redrives[i], true
	}
	return Redrive{}, false
}

// Redriven reports whether the copy of a redrive is known to have been on the queue: it was confirmed, or since then a worker
// has claimed the task under another message, or another message of it was found in the dead-letter queue.
func (r Record) Redriven(d Redrive) bool {
	if d.To != "" || r.MessageID != d.Under && r.MessageID != d.MessageID {
		return true
	}
	for i, a := range r.Attempts {
		if int64(i) >= d.Fence && a.MessageID != d.MessageID {
			return true
		}
	}
	return false
}

func (r Record) redriveIndex(messageID string) int {
	for i, d := range r.Redrives {
		if d.MessageID == messageID {
			return i
		}
	}
	return -1
}

// BeginRedrive notes that a copy of the message is about to be sent, also for another time after one whose end is
// unknown. It returns the record as it then is. The error is [ErrChanged] when a worker has claimed the task since rec was read, its
// status or message is another, or somebody else has begun.
func (s *Store) BeginRedrive(ctx context.Context, rec Record, messageID, code string) (Record, error) {
	note := redriveItem{MessageID: messageID, Code: code, At: stamp(s.now()), Fence: rec.Lease.Fence, Under: rec.MessageID, Try: ulid.Make().String()}
	list := expression.Name("redrives")
	same := list.AttributeNotExists().Or(list.Size().Equal(expression.Value(0)))
	if n := len(rec.Redrives); n > 0 {
		same = list.Size().Equal(expression.Value(n))
	}
	upd := expression.Set(list, expression.ListAppend(
		expression.IfNotExists(list, expression.Value([]redriveItem{})), expression.Value([]redriveItem{note})))
	if i := rec.redriveIndex(messageID); i >= 0 {
		same = unconfirmed(i, messageID).And(redriveField(i, "try").Equal(expression.Value(rec.Redrives[i].Try)))
		upd = expression.Set(redriveName(i), expression.Value(note))
	}
	message := expression.Name("message_id").Equal(expression.Value(rec.MessageID))
	if rec.MessageID == "" {
		message = expression.Name("message_id").AttributeNotExists()
	}
	it, err := s.update(ctx, recordKey(rec), same.And(is(rec.Status), fenceIs(rec.Lease.Fence), message), upd)
	var refusal *refusedError
	switch {
	case err == nil:
		return record(it)
	case !errors.As(err, &refusal):
		return Record{}, wrapRedrive("begin", messageID, rec, err)
	}
	// Our own write, whose answer was lost, is there already.
	if now, err := record(refusal.item); err == nil {
		if d, ok := now.RedriveOf(messageID); ok && d.Try == note.Try {
			return now, nil
		}
	}
	return Record{}, wrapRedrive("begin", messageID, rec, ErrChanged)
}

// EndRedrive notes that the copy is on the queue. The task is queued again then, unless a worker has already claimed it; a
// copy that is another task, because the message does not say which task it is, leaves it failed.
func (s *Store) EndRedrive(ctx context.Context, rec Record, messageID, copyID string, sameTask bool) error {
	i := rec.redriveIndex(messageID)
	if i < 0 {
		return wrapRedrive("end", messageID, rec, ErrNotFound)
	}
	note := expression.Set(redriveField(i, "to"), expression.Value(copyID))
	var refusal *refusedError
	if sameTask && rec.Status == Failed {
		_, err := s.update(ctx, recordKey(rec), unconfirmed(i, messageID).And(is(Failed), fenceIs(rec.Lease.Fence)),
			expression.Set(redriveField(i, "to"), expression.Value(copyID)).
				Set(expression.Name("status"), expression.Value(Queued)).
				Set(expression.Name("message_id"), expression.Value(copyID)).
				Set(expression.Name("updated_at"), expression.Value(stamp(s.now()))).
				Remove(expression.Name("error")))
		if !errors.As(err, &refusal) {
			return wrapRedrive("end", messageID, rec, err)
		}
	}
	_, err := s.update(ctx, recordKey(rec), unconfirmed(i, messageID), note)
	if errors.As(err, &refusal) {
		return nil // noted, by us or by somebody with the same aim
	}
	return wrapRedrive("end", messageID, rec, err)
}

// WithdrawRedrive takes back what [Store.BeginRedrive] noted: no copy was sent.
func (s *Store) WithdrawRedrive(ctx context.Context, rec Record, messageID string) error {
	i := rec.redriveIndex(messageID)
	if i < 0 {
		return nil
	}
	_, err := s.update(ctx, recordKey(rec), unconfirmed(i, messageID), expression.Remove(redriveName(i)))
	var refusal *refusedError
	if errors.As(err, &refusal) {
		return nil
	}
	return wrapRedrive("withdraw", messageID, rec, err)
}

// unconfirmed is the condition that the redrive stands where it stood, and its copy is not known.
func unconfirmed(i int, messageID string) expression.ConditionBuilder {
	return redriveField(i, "message_id").Equal(expression.Value(messageID)).And(redriveField(i, "to").AttributeNotExists())
}

func redriveName(i int) expression.NameBuilder {
	return expression.Name(fmt.Sprintf("redrives[%d]", i))
}

func redriveField(i int, field string) expression.NameBuilder {
	return expression.Name(fmt.Sprintf("redrives[%d].%s", i, field))
}

func wrapRedrive(what, messageID string, rec Record, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s redrive of message %s of task %s: %w", what, messageID, rec.TaskID, err)
}
