package command

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/api"
)

// pageSize is the most that the API gives at once.
const pageSize = 100

func newHistory(s *Session) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "history THREAD",
		Short: "Show every task of a thread with its attempts, oldest first",
		Long: `history shows all tasks of a thread, page by page as they come; with --json one document of
them.`,
		Example: `  agentctl history th-1
  agentctl history ticket-TK-1 --limit 10
  agentctl --json history th-1 | jq '.tasks[] | select(.status=="failed") | .error'`,
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 {
				return Usagef("--limit is %d: give 1 or more, or 0 for all", limit)
			}
			return s.history(c.Context(), args[0], limit)
		},
	}
	c.Flags().IntVar(&limit, "limit", 0, "how many tasks at most; 0: all")
	return c
}

func (s *Session) history(ctx context.Context, thread string, limit int) error {
	all := struct {
		ThreadID string           `json:"thread_id"`
		Tasks    []jsontext.Value `json:"tasks"`
	}{ThreadID: thread, Tasks: []jsontext.Value{}}
	err := s.pages(ctx, thread, limit, func(task jsontext.Value) error {
		if s.JSON {
			all.Tasks = append(all.Tasks, task)
			return nil
		}
		var past api.Past
		if err := json.Unmarshal(task, &past); err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		out := bufio.NewWriter(s.Out)
		s.showPast(out, past)
		return out.Flush()
	})
	if err != nil || !s.JSON {
		return err
	}
	return s.Print(all, nil)
}

// pages hands over the tasks of a thread, oldest first, limit of them at most unless that is 0.
func (s *Session) pages(ctx context.Context, thread string, limit int, each func(jsontext.Value) error) error {
	client, err := s.API(ctx)
	if err != nil {
		return err
	}
	given, cursor := 0, ""
	for {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-given)
		}
		page, err := client.History(ctx, thread, size, cursor)
		if err != nil {
			return err
		}
		for _, task := range page.Tasks {
			if err := each(task); err != nil {
				return err
			}
		}
		given += len(page.Tasks)
		cursor = page.NextCursor
		if cursor == "" || limit > 0 && given >= limit {
			return nil
		}
	}
}

// showPast writes a task of a history for a person.
func (s *Session) showPast(w io.Writer, p api.Past) {
	_, _ = fmt.Fprintf(w, "%s  %s  %s  %s\n", moment(p.SubmittedAt), oneLine(p.TaskID), oneLine(p.Type), s.status(p.Status))
	if p.Error != nil {
		_, _ = fmt.Fprintf(w, "    %s\n", s.Bad(failure(p.Error)))
	}
	for _, a := range p.Attempts {
		took := "not ended"
		if a.StartedAt != nil && a.EndedAt != nil {
			took = a.EndedAt.Sub(*a.StartedAt).String()
		}
		line := fmt.Sprintf("    attempt %d  %s  %s", a.Attempt, moment(a.StartedAt), took)
		if a.Error != nil {
			line += "  " + failure(a.Error)
		}
		_, _ = fmt.Fprintln(w, line)
	}
	for _, step := range p.Steps {
		_, _ = fmt.Fprintln(w, s.Faint(fmt.Sprintf("    step %s is checkpoint %d", oneLine(step.Step), step.N)))
	}
}
