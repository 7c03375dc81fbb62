package dlqalarm

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/dlq"
)

// look is one look into a queue.
type look struct {
	queue       Queue
	arn         string // "": unknown
	approximate int    // messages by the queue's own count, those in flight included
	letters     []*dlq.Letter
	emptied     bool // in the end nothing more was handed out
	err         error
}

// complete says that there is nothing in the queue beyond what was seen, as far as the queue's own count goes. In a FIFO
// queue a group gives no more than one batch while that is in flight, and others may be looking at the same time.
func (l *look) complete() bool { return l.emptied && len(l.letters) >= l.approximate }

const (
	mostLetters = 1000 // of one queue in one look: what an operator needs to know shows well before
	// lastReceive is how long before its end a look begins no receive any more: one that is cut off may leave messages
	// hidden whose handles are lost.
	lastReceive = 2 * time.Second
	// hideSpare is how much longer messages stay hidden than the look may take, so that none comes twice.
	hideSpare = 5 * time.Second
)

// walk receives what lies in the queue and makes everything visible again. Messages are hidden for no longer than that
// takes: the alarm does not count hidden ones, and a redrive does not move them.
func (h *Handler) walk(ctx context.Context, t times, q Queue) *look {
	l := &look{queue: q}
	whole := time.Until(t.look)
	looking, cancel := context.WithDeadline(ctx, t.look)
	defer cancel()
	var depth dlq.Depth
	depth, l.err = dlq.ReadDepth(looking, h.SQS, q.URL)
	l.arn, l.approximate = depth.ARN, depth.Visible+depth.Hidden

	w := &dlq.Walk{SQS: h.SQS, URL: q.URL, Hide: whole.Truncate(time.Second) + hideSpare + time.Second, Logger: h.Logger}
	defer func() {
		back, cancel := context.WithDeadline(context.WithoutCancel(ctx), t.record)
		defer cancel()
		w.Release(back)
	}()
	last := t.look.Add(-min(lastReceive, whole/4))
	more := func() bool { return len(l.letters) < mostLetters && time.Now().Before(last) }
	emptied, err := w.Pass(looking, more, func(messages []types.Message) error {
		for _, m := range messages {
			l.letters = append(l.letters, dlq.Read(h.Tasks, m, dlq.IsFIFO(q.URL)))
		}
		return nil
	})
	l.emptied = emptied
	if l.err == nil {
		l.err = err
	}
	return l
}
