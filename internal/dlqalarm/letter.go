package dlqalarm

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
)

const atOnce = 8 // records being written

// record makes the tasks' records say that they have failed, and learns from them why. Its error says for how many that
// could not be done.
func (h *Handler) record(ctx context.Context, t times, looks []*look) error {
	ctx, cancel := context.WithDeadline(ctx, t.record)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(atOnce)
	failed := make(chan error, len(looks)*(mostLetters+dlq.PerCall))
	for _, look := range looks {
		for _, l := range look.letters {
			group.Go(func() error {
				rec, err := h.bury(ctx, l)
				switch {
				case err != nil:
					h.Logger.ErrorContext(ctx, "dead letter not recorded",
						"task_id", l.ID, "message_id", l.MessageID, "error", err)
					l.Unavailable()
					failed <- err
				default:
					l.Judge(rec, h.Now())
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
func (h *Handler) bury(ctx context.Context, l *dlq.Letter) (checkpoint.Record, error) {
	id, err := l.Find(ctx, h.Store, h.Now())
	if err != nil {
		return checkpoint.Record{}, err
	}
	return h.Store.DeadLettered(ctx, l.DeadLetter(id))
}
