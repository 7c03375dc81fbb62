package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

const aboutDLQRedrive = `redrive puts dead letters back on the queue that they come from. The task is queued again, and its finished steps are not run again.

Without a selection SQS itself moves the whole queue, and Ctrl-C cancels that. With --type, --reason or --task-id the messages
that fit all of them are copied one by one, each deleted when SQS has confirmed its copy. If that is interrupted, however hard,
the same command again brings it to its end: no message is lost, and none is redriven twice.

A message may have been copied just before an interruption, and nobody can tell. It stays until the queue has become empty or a
worker has the copy; --resend does not wait for that.`

const dlqRedriveExamples = `  agentctl dlq redrive --queue tasks --rate 50
  agentctl dlq redrive --reason MODEL_UNAVAILABLE --dry-run
  agentctl dlq redrive --reason MODEL_UNAVAILABLE --type rag_query --rate 5
  agentctl dlq redrive --task-id th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB`

func newDLQRedrive(d *deadLetters) *cobra.Command {
	c := &cobra.Command{Use: "redrive", Short: "Put dead letters back on their queue", Long: aboutDLQRedrive, Example: dlqRedriveExamples, Args: cobra.NoArgs}
	d.selects(c)
	var o deadletter.RedriveOptions
	c.Flags().IntVar(&o.Rate, "rate", 0, fmt.Sprintf("messages a second, 1 to %d (default: as fast as it goes)", deadletter.MaxMoveRate))
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be redriven, and change nothing")
	c.Flags().BoolVar(&o.Resend, "resend", false, "copy again what an interrupted redrive may have copied")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("rate") && (o.Rate < 1 || o.Rate > deadletter.MaxMoveRate) {
			return Usagef("--rate is %d: it must be 1 to %d", o.Rate, deadletter.MaxMoveRate)
		}
		selection, err := d.selection()
		if err != nil {
			return err
		}
		queues, err := d.queues(c.Context())
		if err != nil {
			return err
		}
		list := []redriven{}
		var problem error
		for _, q := range queues {
			r, err := d.redrive(c.Context(), q, selection, o)
			list = append(list, r)
			if problem = errors.Join(problem, err); c.Context().Err() != nil {
				break
			}
		}
		var reports []*deadletter.Report
		for i := range list {
			reports = append(reports, &list[i].Report)
		}
		missing := missingEverywhere(reports)
		err = d.Print(redriveAnswer{list, missing}, func(w io.Writer) {
			for _, r := range list {
				d.writeRedriven(w, r)
			}
			writeMissing(w, missing)
		})
		if problem != nil {
			return problem
		}
		if err == nil && (len(missing) > 0 || slices.ContainsFunc(list, func(r redriven) bool { return !r.Whole() })) {
			return Nof("not everything was redriven")
		}
		return err
	}
	return c
}

type redriveAnswer struct {
	Queues  []redriven `json:"queues"`
	Missing []task.ID  `json:"missing"` // asked for by id, and in none of the queues
}

// redriven is what became of one queue.
type redriven struct {
	deadletter.Report
	Move *deadletter.Move `json:"move,omitzero"` // nil: message by message
}

func (d *deadLetters) redrive(ctx context.Context, q *deadletter.Queue, s deadletter.Selection, o deadletter.RedriveOptions) (redriven, error) {
	if s.All() {
		return d.redriveWhole(ctx, q, o)
	}
	bar := d.bar(-1, "messages")
	o.Progress = func(n int) { _ = bar.Set(n) }
	r, err := q.Redrive(ctx, s, o)
	_ = bar.Exit()
	return redriven{Report: r}, err
}

func (d *deadLetters) redriveWhole(ctx context.Context, q *deadletter.Queue, o deadletter.RedriveOptions) (redriven, error) {
	r := redriven{Report: deadletter.Report{Queue: q.Name(), DryRun: o.DryRun}}
	l, err := q.Look(ctx, deadletter.Selection{})
	if err != nil {
		return r, err
	}
	if (l.Unfinished > 0 || !l.Complete) && !o.DryRun {
		// A move would take along what has been copied already, also where others hid it from the look.
		if r.Report, err = q.Finish(ctx, o); err != nil || r.Uncertain+r.Failed > 0 {
			return r, err
		}
	}
	if !l.Complete && !o.DryRun {
		if l, err = q.Look(ctx, deadletter.Selection{}); err != nil {
			return r, err
		}
	}
	for _, g := range l.Groups {
		if g.Code == dlq.CodeSucceeded {
			r.Succeeded += g.Count
		}
	}
	if o.DryRun {
		r.Groups, r.Seen, r.Redriven, r.Unseen = l.Groups, l.Seen, l.Seen, max(0, l.Approximate-l.Seen)
		return r, nil
	}
	if l.Approximate == 0 && l.Seen == 0 {
		return r, nil
	}
	bar := d.bar(max(l.Approximate, l.Seen), "messages")
	m, err := q.MoveAll(ctx, o.Rate, func(m deadletter.Move) { _ = bar.Set64(m.Moved) })
	_ = bar.Exit()
	r.Move = &m
	r.Groups, r.Unseen = l.Groups, 0
	if err == nil {
		r.Unseen = int(m.ToMove - m.Moved)
	}
	return r, err
}

func (d *deadLetters) writeRedriven(w io.Writer, r redriven) {
	switch {
	case r.Move != nil:
		_, _ = fmt.Fprintf(w, "%s: SQS has moved %d of %d messages: %s\n", r.Queue, r.Move.Moved, r.Move.ToMove, r.Move.Status)
		if r.Move.Joined {
			_, _ = fmt.Fprintln(w, "  The move was already running.")
		}
	case r.DryRun:
		_, _ = fmt.Fprintf(w, "%s: %s would be redriven\n", r.Queue, letters(r.Redriven+r.Finished))
	default:
		_, _ = fmt.Fprintf(w, "%s: %s redriven\n", r.Queue, letters(r.Redriven+r.Finished))
	}
	d.writeGroups(w, r.Groups)
	d.writeRest(w, r.Report)
}

// writeRest says what is to be said of a report besides its count.
func (d *deadLetters) writeRest(w io.Writer, r deadletter.Report) {
	say := func(n int, text string) {
		if n > 0 {
			_, _ = fmt.Fprintf(w, "  %d %s\n", n, text)
		}
	}
	if r.Redriven+r.Purged+r.Finished+len(r.Left)+r.Uncertain+r.Failed+r.Newer+r.Again == 0 {
		writeOthers(w, r.Others)
	}
	say(r.Succeeded, "of them had already succeeded: their redelivery has no effect")
	say(r.Again, "of the copies have failed again by now, and stay: is their cause mended?")
	say(r.Newer, "were sent since this began, and stay: copies of another redrive that have failed again, or new ones")
	say(r.Finished, "of them had been copied by a redrive that was interrupted, and were only deleted")
	for _, code := range slices.Sorted(maps.Keys(r.Left)) {
		say(r.Left[code], "stay, since they are "+code+"; name that by --reason to take them too")
	}
	say(r.Uncertain, "stay, since an interrupted redrive may have copied them: try again when the queue is empty, or say --resend")
	say(r.Failed, "stay, since something failed: "+dlq.Line(r.Problem, 500))
	if r.EndedEarly {
		say(r.Unseen, "more were not looked at, since it ended early: run it again for them")
	} else {
		say(r.Unseen, "more could not be seen: somebody else hides them, or they lie behind the first ten of their group")
	}
}

// missingEverywhere takes out of the reports which tasks they lack, and gives those that all of them do.
func missingEverywhere(reports []*deadletter.Report) []task.ID {
	missing := []task.ID{}
	for i, r := range reports {
		if i == 0 {
			missing = append(missing, r.Missing...)
		} else {
			missing = slices.DeleteFunc(missing, func(id task.ID) bool { return !slices.Contains(r.Missing, id) })
		}
	}
	for _, r := range reports {
		r.Missing = nil
	}
	return missing
}

func writeMissing(w io.Writer, ids []task.ID) {
	for _, id := range ids {
		_, _ = fmt.Fprintf(w, "%s was not found\n", id)
	}
}
