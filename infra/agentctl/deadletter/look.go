package deadletter

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
)

// Listing is what lies in a dead-letter queue.
type Listing struct {
	Queue       string    `json:"queue"`
	Seen        int       `json:"seen"`        // messages
	Approximate int       `json:"approximate"` // messages by the queue's own count
	Complete    bool      `json:"complete"`    // false: there may be more than were seen
	Hidden      int       `json:"hidden"`      // of those that were not seen: somebody else is looking at them
	Oldest      time.Time `json:"oldest,omitzero"`
	Unfinished  int       `json:"unfinished"` // messages whose redrive was interrupted
	Groups      []Group   `json:"groups"`     // the largest first
	// Others are the messages that the selection leaves out, by code.
	Others map[string]int `json:"others,omitempty"`
}

// Group is the dead letters of one task type that lie there for the same reason, which is that of the oldest.
type Group struct {
	dlq.Group
	Reason string `json:"reason"`
}

// Look lists the selected messages of the queue, or all. It changes nothing.
func (q *Queue) Look(ctx context.Context, s Selection) (Listing, error) {
	before, err := dlq.ReadDepth(ctx, q.SQS, q.DeadLetterURL)
	if err != nil {
		return Listing{}, err
	}
	l := Listing{Queue: q.Name(), Approximate: before.Total(), Others: map[string]int{}}
	var mu sync.Mutex
	var letters []*dlq.Letter
	err = q.tour(ctx, 0, 0, func(ctx context.Context, _ int, m types.Message) (verdict, error) {
		letter, rec, err := q.judge(ctx, m, q.Store.AsDeadLettered)
		if err != nil && ctx.Err() == nil {
			q.Logger.WarnContext(ctx, "record not read", "task_id", letter.ID, "message_id", letter.MessageID, "error", err)
		}
		begun, unfinished := rec.RedriveOf(letter.MessageID)
		mu.Lock()
		defer mu.Unlock()
		l.Seen++
		if s.takes(letter, begun) {
			letters = append(letters, letter)
			if unfinished {
				l.Unfinished++
			}
		} else {
			l.Others[letter.Code]++
		}
		return stays, nil
	})
	l.Hidden = min(before.Hidden, max(0, l.Approximate-l.Seen))
	l.Complete = err == nil && l.Seen >= l.Approximate
	l.Groups, l.Oldest = groups(letters)
	return l, err
}

// judge reads a message and what the task's record makes of it. Beside an error the letter says that its record is not available.
func (q *Queue) judge(ctx context.Context, m types.Message, read func(context.Context, checkpoint.DeadLetter) (checkpoint.Record, error)) (*dlq.Letter, checkpoint.Record, error) {
	l := dlq.Read(q.Tasks, m, q.fifo())
	id, err := l.Find(ctx, q.Store, q.Now())
	if err != nil {
		l.Unavailable()
		return l, checkpoint.Record{}, err
	}
	rec, err := read(ctx, l.DeadLetter(id))
	if err != nil {
		l.Unavailable()
		return l, checkpoint.Record{}, err
	}
	l.Judge(rec, q.Now())
	return l, rec, nil
}

func groups(letters []*dlq.Letter) (list []Group, oldest time.Time) {
	list = []Group{}
	for _, g := range dlq.Groups(letters) {
		list = append(list, Group{Group: g, Reason: g.Reason})
		if oldest.IsZero() || !g.Oldest.IsZero() && g.Oldest.Before(oldest) {
			oldest = g.Oldest
		}
	}
	return list, oldest
}
