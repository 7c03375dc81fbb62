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

// tour shows every message of the dead-letter queue, in as many passes as that takes: a FIFO queue shows the messages
// behind the first ten of a group when those are gone, and what others hide comes back in its time. It gives up, with
// some of them not seen, when nothing has come for as long as its patience lasts.
//
// Messages of one group of a FIFO queue are shown in their order, and everything else side by side. The first pass is
// number 1.
func (q *Queue) tour(ctx context.Context, patience time.Duration, show func(ctx context.Context, pass int, m types.Message) (verdict, error)) error {
	t := &tour{Queue: q, show: show, done: map[string]bool{}, walk: &dlq.Walk{
		SQS: q.SQS, URL: q.DeadLetterURL, Hide: q.Hide, Renew: true, Logger: q.Logger,
	}}
	giveUp := time.Now().Add(patience)
	for pass := 1; ; pass++ {
		err := t.pass(ctx, pass)
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
		// What was given back in a standard queue has been shown. In a FIFO queue it may have stood before others.
		more := q.fifo() && t.news > 0 && depth.Total() > t.kept
		awaited := t.later > 0 || depth.Hidden > 0
		switch {
		case more:
		case !awaited || patience == 0 || time.Now().After(giveUp):
			return nil
		default:
			if err := q.pause(ctx); err != nil {
				return err
			}
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
	walk *dlq.Walk
	show func(ctx context.Context, pass int, m types.Message) (verdict, error)

	mu    sync.Mutex
	done  map[string]bool // message ids that need not be shown again
	kept  int             // of these, how many are still in the queue
	news  int             // messages of this pass that are done
	later int             // messages of this pass that are not
}

func (t *tour) pass(ctx context.Context, pass int) error {
	t.news, t.later = 0, 0
	defer func() {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		t.walk.Release(back)
	}()
	_, err := t.walk.Pass(ctx, func() bool { return ctx.Err() == nil }, func(messages []types.Message) error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for _, row := range t.rows(messages) {
			g.Go(func() error { return t.visit(ctx, pass, row) })
		}
		return g.Wait()
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
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

func (t *tour) visit(ctx context.Context, pass int, row []types.Message) error {
	for _, m := range row {
		id := aws.ToString(m.MessageId)
		if t.isDone(id) {
			continue
		}
		v, err := t.show(ctx, pass, m)
		if v == gone {
			t.walk.Gone(id)
		}
		t.mu.Lock()
		switch v {
		case later:
			t.later++
		case stays:
			t.kept++
			fallthrough
		case gone:
			t.done[id] = true
			t.news++
		}
		t.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) isDone(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done[id]
}
