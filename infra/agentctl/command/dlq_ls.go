package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/dlq"
)

const aboutDLQLs = `ls shows how many dead letters there are, by task type and reason, and how old the oldest is.

Of a group of an ordered queue SQS shows the first ten messages only, until these are gone; the list then says that there are more.`

const dlqLsExamples = `  agentctl dlq ls
  agentctl --local dlq ls --queue ordered
  agentctl --json dlq ls | jq '.queues[].groups[] | {code, count}'`

func newDLQLs(d *deadLetters) *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List dead letters by type and reason", Long: aboutDLQLs, Example: dlqLsExamples, Args: cobra.NoArgs}
	d.selects(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		selection, err := d.selection()
		if err != nil {
			return err
		}
		queues, err := d.queues(c.Context())
		if err != nil {
			return err
		}
		list := []deadletter.Listing{}
		for _, q := range queues {
			l, err := q.Look(c.Context(), selection)
			if err != nil {
				return err
			}
			list = append(list, l)
		}
		return d.Print(map[string]any{"queues": list}, func(w io.Writer) {
			for _, l := range list {
				d.writeListing(w, l)
			}
		})
	}
	return c
}

func (d *deadLetters) writeListing(w io.Writer, l deadletter.Listing) {
	count := 0
	for _, g := range l.Groups {
		count += g.Count
	}
	atLeast := ""
	if !l.Complete {
		atLeast = "at least "
	}
	_, _ = fmt.Fprintf(w, "%s: %s%s", l.Queue, atLeast, letters(count))
	if !l.Oldest.IsZero() {
		_, _ = fmt.Fprintf(w, ", the oldest %s old", dlq.Age(time.Since(l.Oldest)))
	}
	_, _ = fmt.Fprintln(w)
	d.writeGroups(w, l.Groups)
	if count == 0 {
		writeOthers(w, l.Others)
	}
	if unseen := l.Approximate - l.Seen; unseen > 0 {
		_, _ = fmt.Fprintf(w, "  %d more could not be seen: ", unseen)
		if l.Hidden > 0 {
			_, _ = fmt.Fprintf(w, "somebody else was looking at %d of them; try again in half a minute\n", l.Hidden)
		} else {
			_, _ = fmt.Fprintln(w, "they lie behind the first ten of their group, or the queue's count lags behind")
		}
	}
	if l.Unfinished > 0 {
		_, _ = fmt.Fprintf(w, "  The redrive of %d was interrupted: redrive them again to bring it to its end.\n", l.Unfinished)
	}
}
