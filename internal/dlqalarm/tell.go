package dlqalarm

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
)

// What has been said is remembered in two kinds of idempotency keys, which live for a day from their making:
//
//	dlqalarm-event-<hash>   one end of an alarm; sent once it has been published
//	dlqalarm-said-<queue>   what the notifications of the day have said of the queue
//
// Both are noted only after the publishing, so that a notification may come twice, and is never lost.

// tell publishes if there is something to say that has not been said.
func (h *Handler) tell(ctx context.Context, e Event, looks []*look, s Summary) (published bool, err error) {
	calmed := e.Kind == KindAlarm && e.Alarm.State == stateOK && e.Alarm.Previous == stateAlarm
	switch {
	case s.seen() > 0:
		return h.tellNews(ctx, e, looks, s)
	case calmed && s.empty():
		told, err := h.told(ctx, e.Alarm)
		if err != nil {
			// Better twice than not at all.
			h.Logger.WarnContext(ctx, "earlier notifications are unknown", "error", err)
		}
		return h.publish(ctx, e.Alarm, !told, over(e, s))
	}
	return false, nil
}

// tellNews publishes if some of what was seen is new. An alarm alone is no news: to look at a queue hides its messages for
// a moment, by which the alarm may end and go off again.
func (h *Handler) tellNews(ctx context.Context, e Event, looks []*look, s Summary) (published bool, err error) {
	memories, err := h.memories(ctx, looks)
	unknown := err != nil && e.Kind == KindAlarm && e.Alarm.State == stateAlarm
	switch {
	case unknown:
		h.Logger.WarnContext(ctx, "earlier notifications are unknown", "error", err)
	case err != nil:
		return false, err
	}
	fresh := slices.ContainsFunc(memories, func(m memory) bool { return m.fresh })
	published, err = h.publish(ctx, e.Alarm, fresh || unknown, compose(e, s, h.Now()))
	if published {
		h.remember(ctx, memories)
	}
	return published, err
}

func (h *Handler) publish(ctx context.Context, a Alarm, due bool, n notification) (bool, error) {
	if !due {
		return false, nil
	}
	out, err := h.Topic.Publish(ctx, &sns.PublishInput{TopicArn: &h.TopicARN, Subject: &n.subject, Message: &n.body})
	if err != nil {
		return false, fmt.Errorf("publish to %s: %w", h.TopicARN, err)
	}
	id := aws.ToString(out.MessageId)
	h.Logger.InfoContext(ctx, "notification published", "message_id", id, "alarm", a.Name)
	if key, ok := a.key(); ok {
		h.note(ctx, key, id)
	}
	return true, nil
}

// note is best effort: an error would have the invocation repeated, and the notification with it.
func (h *Handler) note(ctx context.Context, key, value string) {
	if err := h.Store.KeySent(ctx, key, value); err != nil {
		h.Logger.WarnContext(ctx, "notification not noted: it may be repeated", "error", err)
	}
}

// key names one change of one alarm's state; ok is false for an event that does not say which.
func (a Alarm) key() (key string, ok bool) {
	if a.ARN == "" || a.Timestamp == "" {
		return "", false
	}
	sum := sha256.Sum256([]byte(a.ARN + "\x00" + a.Timestamp))
	return "dlqalarm-event-" + hex.EncodeToString(sum[:]), true
}

// told reports whether this change of the alarm has been published: Lambda may deliver an event more than once.
// Source: AWS Lambda Developer Guide, "Invoking a Lambda function asynchronously".
func (h *Handler) told(ctx context.Context, a Alarm) (bool, error) {
	key, ok := a.key()
	if !ok {
		return false, nil
	}
	k, _, err := h.Store.ReserveKey(ctx, checkpoint.Key{Hash: key})
	return k.MessageID != "", err
}

// memory is what notifications have said of a queue, and what there is to say of it now.
type memory struct {
	key   string
	marks []mark // of both, the new ones last
	fresh bool   // some of them have not been said
}

// mark stands for one thing that can be said.
type mark [8]byte

// mostMarks bounds a memory: some 85 KB. The oldest are forgotten first, and may be said again.
const mostMarks = 8 * mostLetters

func (h *Handler) memories(ctx context.Context, looks []*look) ([]memory, error) {
	var list []memory
	var problems []error
	for _, l := range looks {
		if len(l.letters) == 0 {
			continue
		}
		m := memory{key: "dlqalarm-said-" + l.queue.name()}
		k, _, err := h.Store.ReserveKey(ctx, checkpoint.Key{Hash: m.key})
		if err != nil {
			problems = append(problems, fmt.Errorf("read what was said of %s: %w", l.queue.name(), err))
			continue
		}
		m.marks = parseMarks(k.MessageID)
		said := make(map[mark]bool, len(m.marks))
		for _, x := range m.marks {
			said[x] = true
		}
		for _, x := range l.marks() {
			if !said[x] {
				said[x], m.fresh = true, true
				m.marks = append(m.marks, x)
			}
		}
		m.marks = m.marks[max(0, len(m.marks)-mostMarks):]
		list = append(list, m)
	}
	return list, errors.Join(problems...)
}

func (h *Handler) remember(ctx context.Context, memories []memory) {
	for _, m := range memories {
		if m.fresh {
			h.note(ctx, m.key, formatMarks(m.marks))
		}
	}
}

// marks are what there is to say: each message, and its reason. That a record is not to be had just then is no reason that would be
// news of a message which has been told. Of a queue that holds more than one look can take, every
// look sees other messages; there it is each type with its reason, and the order of magnitude.
func (l *look) marks() []mark {
	many := !l.emptied && l.err == nil
	var list []mark
	for _, x := range l.letters {
		what := []string{x.MessageID}
		if many {
			what = []string{"many", x.Type}
		}
		list = append(list, newMark(what...))
		if x.Code != dlq.CodeUnavailable {
			list = append(list, newMark(append(what, x.Code)...))
		}
	}
	if many && len(l.letters) > 0 {
		list = append(list, newMark("depth", fmt.Sprint(bits.Len(uint(max(l.approximate, len(l.letters)))))))
	}
	return list
}

func newMark(parts ...string) mark {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	return mark(sum[:8])
}

func formatMarks(marks []mark) string {
	var b []byte
	for _, m := range marks {
		b = append(b, m[:]...)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// parseMarks reads what formatMarks wrote; anything else is nothing.
func parseMarks(s string) []mark {
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	var marks []mark
	for part := range slices.Chunk(b, len(mark{})) {
		if len(part) == len(mark{}) {
			marks = append(marks, mark(part))
		}
	}
	return marks
}
