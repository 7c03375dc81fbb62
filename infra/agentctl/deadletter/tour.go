package deadletter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/dlq"
)

// verdict is what has become of a message that was shown.
type verdict int

const (
	stays verdict = iota // it need not be shown again
	gone                 // it was deleted
	later                // it is to be shown again in the next pass
)

// errEnough ends a tour before its end.
var errEnough = errors.New("enough was seen")

const (
	atOnce      = 8                // messages, or groups of a FIFO queue
	releaseTime = 10 * time.Second // for giving back what is held, also after an interruption
)

// tour shows every message of the dead-letter queue, in as many passes as that takes: what others hide comes back in its
// time. It gives up, with some of them not seen, when nothing has come for as long as its patience lasts. Of a group of a
// FIFO queue it can show the first ten that stay, and no more.
//
// expected is how many messages there were at the beginning, by the queue's own count: while fewer were shown, and more lie there than
// were shown, others have hidden them during the pass.
//
// Messages of one group of a FIFO queue are shown in their order, and everything else side by side. The first pass is
// number 1.
func (q *Queue) tour(ctx context.Context, patience time.Duration, expected int, show func(ctx context.Context, pass int, m types.Message) (verdict, error)) error {
	t := &tour{Queue: q, show: show, done: map[string]bool{}, walk: &dlq.Walk{
		SQS: q.SQS, URL: q.DeadLetterURL, Hide: q.Hide, Renew: true, Logger: q.Logger,
	}}
	giveUp := time.Now().Add(patience)
	for t.number = 1; ; t.number++ {
		err := t.pass(ctx)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return err
		}
		if t.news > 0 {
			giveUp = time.Now().Add(patience)
		}
		depth, err := dlq.ReadDepth(ctx, q.SQS, q.DeadLetterURL)
		if err != nil {
			return err
		}
		if awaited := t.later > 0 || depth.Hidden > 0 || t.missed(expected, depth); !awaited || patience == 0 || time.Now().After(giveUp) {
			return nil
		}
		if err := q.pause(ctx); err != nil {
			return err
		}
	}
}

func (q *Queue) pause(ctx context.Context) error {
	timer := time.NewTimer(q.Pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type tour struct {
	*Queue
	walk   *dlq.Walk
	show   func(ctx context.Context, pass int, m types.Message) (verdict, error)
	number int // of the pass

	mu   sync.Mutex
	done map[string]bool // message ids that need not be shown again
	gone int             // of them: those that were deleted
	// Of this pass:
	shown map[string]bool     // message ids
	kept  map[string][]string // by group: message ids that are still there
	cut   map[string]bool     // groups that may have more to show
	news  int                 // messages that are done now
	later int                 // messages that are not
}

// pass shows what the queue hands out. Where a group of a FIFO queue may have more to show, it gives the group back while
// the others stay hidden, and looks again.
func (t *tour) pass(ctx context.Context) error {
	t.shown, t.kept, t.cut, t.news, t.later = map[string]bool{}, map[string][]string{}, map[string]bool{}, 0, 0
	defer func() {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		t.walk.Release(back)
	}()
	for {
		before := len(t.shown)
		_, err := t.walk.Pass(ctx, func() bool { return ctx.Err() == nil }, func(messages []types.Message) error {
			return t.batch(ctx, messages)
		})
		if err == nil {
			err = ctx.Err()
		}
		back := t.unfinished()
		if err != nil || len(back) == 0 || len(t.shown) == before {
			return err
		}
		t.walk.Release(ctx, back...)
	}
}

// missed reports whether the pass has not shown what it could. Behind the first ten of a group of a FIFO queue it could not.
func (t *tour) missed(expected int, depth dlq.Depth) bool {
	for _, kept := range t.kept {
		if t.fifo() && len(kept) >= dlq.PerCall {
			return false
		}
	}
	seen := len(t.done) + t.later
	return seen < expected && depth.Total() > seen-t.gone
}

// batch shows what one receive has brought.
func (t *tour) batch(ctx context.Context, messages []types.Message) error {
	if t.fifo() {
		for _, m := range messages {
			t.cut[group(m)] = false
		}
		t.cut[group(messages[len(messages)-1])] = len(messages) == dlq.PerCall
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, row := range t.rows(messages) {
		g.Go(func() error { return t.visit(ctx, row) })
	}
	return g.Wait()
}

// unfinished are the messages that stand before others of their group which a receive could bring, but has not.
func (t *tour) unfinished() (ids []string) {
	for group, cut := range t.cut {
		if kept := t.kept[group]; cut && len(kept) < dlq.PerCall {
			ids = append(ids, kept...)
		}
	}
	return ids
}

// rows are the messages that have to be shown one after another.
func (t *tour) rows(messages []types.Message) [][]types.Message {
	var rows [][]types.Message
	index := map[string]int{}
	for _, m := range messages {
		key := aws.ToString(m.MessageId)
		if t.fifo() {
			key = group(m)
		}
		i, ok := index[key]
		if !ok {
			i = len(rows)
			index[key] = i
			rows = append(rows, nil)
		}
		rows[i] = append(rows[i], m)
	}
	return rows
}

func group(m types.Message) string {
	return m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
}

func (t *tour) visit(ctx context.Context, row []types.Message) error {
	for _, m := range row {
		id := aws.ToString(m.MessageId)
		if !t.toShow(m, id) {
			continue
		}
		v, err := t.show(ctx, t.number, m)
		t.decided(m, id, v)
		if err != nil {
			return err
		}
	}
	return nil
}

// toShow reports whether the message has to be shown in this pass.
func (t *tour) toShow(m types.Message, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown[id] {
		return false
	}
	t.shown[id] = true
	if t.done[id] {
		t.kept[group(m)] = append(t.kept[group(m)], id)
	}
	return !t.done[id]
}

func (t *tour) decided(m types.Message, id string, v verdict) {
	if v == gone {
		t.walk.Gone(id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v == later {
		t.later++
	} else {
		t.done[id] = true
		t.news++
	}
	if v == gone {
		t.gone++
		t.cut[group(m)] = t.fifo() // others may stand behind it
		return
	}
	t.kept[group(m)] = append(t.kept[group(m)], id)
}
