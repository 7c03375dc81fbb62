package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/task"
)

const aboutDLQPurge = `purge deletes dead letters for ever. It shows what will be lost and asks; in a script say --yes.

The tasks' records stay, and say failed. Without a selection SQS purges the whole queue, also what a look could not show and what
arrives in the minute that this may take; it does so once in a minute. With --type, --reason or --task-id the messages that fit all
of them are deleted one by one.`

const dlqPurgeExamples = `  agentctl dlq purge --reason MALFORMED_MESSAGE
  agentctl dlq purge --queue ordered --yes`

func newDLQPurge(d *deadLetters) *cobra.Command {
	c := &cobra.Command{Use: "purge", Short: "Delete dead letters for ever", Long: aboutDLQPurge, Example: dlqPurgeExamples, Args: cobra.NoArgs}
	d.selects(c)
	var yes bool
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.RunE = func(c *cobra.Command, _ []string) error {
		selection, err := d.selection()
		if err != nil {
			return err
		}
		if !yes && !d.InTerminal {
			return Usagef("nobody is there to be asked: say --yes to delete for ever")
		}
		queues, err := d.queues(c.Context())
		if err != nil {
			return err
		}
		if !yes {
			if sure, err := d.confirmPurge(c.Context(), queues, selection); err != nil || !sure {
				return err
			}
		}
		list := []deadletter.Report{}
		var problem error
		for _, q := range queues {
			r, err := d.purge(c.Context(), q, selection)
			list = append(list, r)
			problem = errors.Join(problem, err)
		}
		var reports []*deadletter.Report
		for i := range list {
			reports = append(reports, &list[i])
		}
		missing := missingEverywhere(reports)
		err = d.Print(purgeAnswer{list, missing}, func(w io.Writer) {
			for _, r := range list {
				_, _ = fmt.Fprintf(w, "%s: %s purged\n", r.Queue, letters(r.Purged))
				d.writeGroups(w, r.Groups)
				d.writeRest(w, r)
			}
			writeMissing(w, missing)
		})
		if problem != nil {
			return problem
		}
		if err == nil && (len(missing) > 0 || slices.ContainsFunc(list, func(r deadletter.Report) bool { return !r.Whole() })) {
			return Nof("not everything was purged")
		}
		return err
	}
	return c
}

type purgeAnswer struct {
	Queues  []deadletter.Report `json:"queues"`
	Missing []task.ID           `json:"missing"` // asked for by id, and in none of the queues
}

// confirmPurge shows what will be lost and asks.
func (d *deadLetters) confirmPurge(ctx context.Context, queues []*deadletter.Queue, s deadletter.Selection) (bool, error) {
	count := 0
	for _, q := range queues {
		l, err := q.Look(ctx, s)
		if err != nil {
			return false, err
		}
		for _, g := range l.Groups {
			count += g.Count
		}
		d.writeListing(d.Err, l)
	}
	if count == 0 && !s.All() {
		return false, Nof("nothing is selected")
	}
	sure, err := d.Confirm(ctx, fmt.Sprintf("Delete %s for ever?", letters(count)))
	if err == nil && !sure {
		err = Nof("nothing was deleted")
	}
	return sure, err
}

func (d *deadLetters) purge(ctx context.Context, q *deadletter.Queue, s deadletter.Selection) (deadletter.Report, error) {
	if !s.All() {
		bar := d.bar(-1, "messages")
		r, err := q.Purge(ctx, s, func(n int) { _ = bar.Set(n) })
		_ = bar.Exit()
		return r, err
	}
	l, err := q.Look(ctx, s)
	r := deadletter.Report{Queue: q.Name(), Seen: l.Seen}
	if err != nil || l.Approximate == 0 && l.Seen == 0 {
		return r, err
	}
	if err := q.PurgeAll(ctx); err != nil {
		return r, err
	}
	r.Purged, r.Groups = max(l.Approximate, l.Seen), l.Groups
	return r, nil
}
