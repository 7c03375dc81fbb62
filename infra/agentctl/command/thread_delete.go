package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentworker/internal/checkpoint"
)

func newThreadDelete(s *Session) *cobra.Command {
	var yes, force bool
	c := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete everything that the table holds about a thread",
		Long: `delete removes a thread's tasks with their attempts, its checkpoints, its result and, when it is
a ticket's thread (ticket-<id>), the ticket. It says what will go and asks first. Killed in
between, it is done by running it again; a thread that is not there is fine.

It refuses while a task of the thread is queued, running or retrying, and for half an hour after
one has failed, since its message may still be on its way into the dead-letter queue: with its
record gone it would run as a new task. --force does not refuse. It says what it cannot delete,
and how long that stays. It needs dynamodb:Query, GetItem, DeleteItem and BatchWriteItem on the
table.`,
		Example: `  agentctl thread delete th-1
  agentctl --json thread delete ticket-TK-1 --yes`,
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error { return s.threadDelete(c.Context(), args[0], yes, force) },
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "also while a task has not ended: it may begin anew, and write to the thread")
	return c
}

func (s *Session) threadDelete(ctx context.Context, thread string, yes, force bool) error {
	_, eraser, err := s.thread(ctx, thread)
	if err != nil {
		return err
	}
	there, err := eraser.Look(ctx, thread)
	if err != nil {
		return err
	}
	if n := len(there.Unfinished); n > 0 && !force {
		return Nof("nothing was deleted: tasks of the thread have not ended, or have failed less than %.0f minutes ago and may be delivered once more "+
			"(%d, such as %s): wait for them, or say --force", checkpoint.Settling.Minutes(), n, there.Unfinished[0])
	}
	if there.Items() > 0 && !yes {
		s.Note("Of thread %s will be deleted for good: %s.", thread, holdings(there))
		sure, err := s.Confirm(ctx, "Delete it?")
		if err != nil {
			return err
		}
		if !sure {
			return Nof("nothing was deleted")
		}
	}
	bar := s.bar(there.Items(), "items")
	gone, err := eraser.Forget(ctx, thread, force, func(items int) { _ = bar.Set(items) })
	_ = bar.Exit()
	if err != nil {
		s.Note("%d items are deleted: run it again for the others", gone.Items())
		if errors.Is(err, checkpoint.ErrUnfinished) {
			return Nof("%v", err)
		}
		return err
	}
	left := remains(gone, s.Local)
	answer := struct {
		ThreadID string              `json:"thread_id"`
		Deleted  checkpoint.Holdings `json:"deleted"`
		Items    int                 `json:"items"`
		Remains  []string            `json:"remains"`
	}{thread, gone, gone.Items(), left}
	return s.Print(answer, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "Deleted %d items of thread %s: %s.\n", gone.Items(), thread, holdings(gone))
		for _, what := range left {
			_, _ = fmt.Fprintln(w, "What remains: "+what)
		}
	})
}

// holdings is what there is, in words.
func holdings(h checkpoint.Holdings) string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{
		{h.Tasks, "task", "tasks"},
		{h.Checkpoints, "checkpoint", "checkpoints"},
		{h.DataParts, "part of large data", "parts of large data"},
		{h.Results, "result", "results"},
		{h.Tickets, "ticket", "tickets"},
	} {
		switch p.n {
		case 0:
		case 1:
			parts = append(parts, "1 "+p.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// remains says what cannot be deleted from here.
func remains(gone checkpoint.Holdings, local bool) []string {
	left := []string{}
	if gone.Tasks > 0 {
		left = append(left, fmt.Sprintf("the Idempotency-Keys of its tasks, as hashes beside task ids, for %d hours after each submission "+
			"(until then such a key names the deleted task), and until the table deletes what has expired.", int(checkpoint.IdempotencyKeyLife.Hours())))
		if !local {
			left = append(left, "everything in the table's point-in-time recovery, for up to 35 days.")
		}
	}
	if gone.Failed > 0 {
		left = append(left, fmt.Sprintf("messages of up to %d failed tasks in the dead-letter queues, with their content, until they expire there: "+
			"purge them, or their records come back when they are looked at.", gone.Failed))
	}
	return left
}
