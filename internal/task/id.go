package task

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// ID names one task for ever: "<thread id>.<ULID>", for example "th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB".
// It says where the task's record lies and sorts by submission time within its thread.
// It is at most 127 characters of letters, digits and punctuation, so that it fits an SQS
// MessageDeduplicationId (128).
type ID string

// Unparsed is the thread under which messages are recorded that cannot be read as a task.
// Clients cannot submit to it.
const Unparsed = "unparsed"

// MaxThreadIDLength and MaxTicketIDLength are counted in bytes. A ticket's thread is
// "ticket-<id>", which must itself be a valid thread id.
const (
	MaxThreadIDLength = 100
	MaxTicketIDLength = MaxThreadIDLength - len(ticketThreadPrefix)
)

const ticketThreadPrefix = "ticket-"

// The alphabet keeps ids usable unescaped in table keys (no '#'), URL paths (no '/'), SQS group
// ids (no spaces, ASCII only) and log queries.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:@=+-]*$`)

const idAlphabet = "letters, digits and _ . : @ = + -, starting with a letter or digit"

// NewID makes the id of a task submitted to thread at the given time. Two ids never coincide.
func NewID(thread string, at time.Time) ID {
	return join(thread, ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()))
}

// IDFromMessage makes the id of a message that carries none, because another program put it on the
// queue. The same message gives the same id at every delivery: both its message id and its send
// time are stable over redelivery.
func IDFromMessage(thread, messageID string, sentAt time.Time) ID {
	var u ulid.ULID
	sum := sha256.Sum256([]byte(messageID))
	// Both setters fail only on values that cannot occur here: a time after the year 10889 or
	// an entropy that is not ten bytes long.
	_ = u.SetTime(ulid.Timestamp(sentAt))
	_ = u.SetEntropy(sum[:10])
	return join(thread, u)
}

func join(thread string, u ulid.ULID) ID { return ID(thread + "." + u.String()) }

// ParseID checks that s has the form of a task id.
func ParseID(s string) (ID, error) {
	thread, rest, ok := cutLast(s)
	if !ok {
		return "", fmt.Errorf("task id must have the form <thread_id>.<ULID>")
	}
	if err := CheckThreadID(thread); err != nil {
		return "", fmt.Errorf("task id: its thread part %w", err)
	}
	u, err := ulid.ParseStrict(rest)
	// Lower case decodes too, but would name a record that does not exist.
	if err != nil || u.String() != rest {
		return "", fmt.Errorf("task id must end in a ULID: 26 characters of Crockford's base 32 in upper case")
	}
	return ID(s), nil
}

// Thread is the id of the thread that the task belongs to.
func (id ID) Thread() string { thread, _, _ := cutLast(string(id)); return thread }

// ULID is the part that tells the task from others of its thread.
func (id ID) ULID() string { _, u, _ := cutLast(string(id)); return u }

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// NewThreadID makes an id for a task that names no thread.
func NewThreadID(at time.Time) string {
	return "th-" + ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()
}

// TicketThread is the thread, and the message group, in which a ticket's updates are ordered.
func TicketThread(ticketID string) string { return ticketThreadPrefix + ticketID }

// TicketOf is the inverse of [TicketThread]: the ticket whose thread it is, if it is one's.
func TicketOf(thread string) (ticketID string, ok bool) {
	id, ok := strings.CutPrefix(thread, ticketThreadPrefix)
	if !ok || CheckTicketID(id) != nil {
		return "", false
	}
	return id, true
}

// CheckThreadID says what is wrong with a thread id, in words that follow the field's name.
func CheckThreadID(s string) error { return checkID(s, MaxThreadIDLength) }

// CheckTicketID says what is wrong with a ticket id, in words that follow the field's name.
func CheckTicketID(s string) error { return checkID(s, MaxTicketIDLength) }

func checkID(s string, limit int) error {
	switch {
	case s == "":
		return fmt.Errorf("must not be empty")
	case len(s) > limit:
		return fmt.Errorf("must be at most %d characters long, not %d", limit, len(s))
	case !idPattern.MatchString(s):
		return fmt.Errorf("must consist of %s", idAlphabet)
	}
	return nil
}
