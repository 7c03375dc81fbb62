package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/api"
	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

func newThread(s *Session) *cobra.Command {
	c := &cobra.Command{
		Use: "thread", Short: "Show or delete everything that the table holds about a thread",
		Example: `  agentctl thread show th-1
  agentctl thread delete th-1`,
	}
	c.AddCommand(newThreadShow(s), newThreadDelete(s))
	return c
}

func newThreadShow(s *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a thread's tasks and checkpoints, and how much the table holds of it",
		Long: `show reads the table itself, beside the API: it needs dynamodb:Query and dynamodb:GetItem on it.
Exit code 1: there is no such thread.`,
		Example: `  agentctl thread show th-1
  agentctl --json thread show ticket-TK-1 | jq '.checkpoints[0]'`,
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error { return s.threadShow(c.Context(), args[0]) },
	}
}

// checkpointView is a checkpoint without its data.
type checkpointView struct {
	N          uint64      `json:"n"`
	Task       string      `json:"task"`
	TaskID     task.ID     `json:"task_id"`
	Step       string      `json:"step"`
	Attempt    int         `json:"attempt"`
	DurationMS int64       `json:"duration_ms"`
	Tokens     task.Tokens `json:"tokens"`
	Bytes      int         `json:"bytes"` // of its data, uncompressed
	Last       bool        `json:"last"`  // it is its task's result
	UpdatedAt  time.Time   `json:"updated_at"`
}

type threadView struct {
	ThreadID    string              `json:"thread_id"`
	Items       checkpoint.Holdings `json:"items"`
	Tasks       []jsontext.Value    `json:"tasks"`       // oldest first
	Checkpoints []checkpointView    `json:"checkpoints"` // newest first
}

func (s *Session) threadShow(ctx context.Context, thread string) error {
	view := threadView{ThreadID: thread, Tasks: []jsontext.Value{}}
	items, eraser, err := s.thread(ctx, thread)
	if err != nil {
		return err
	}
	if view.Items, err = eraser.Look(ctx, thread); err != nil {
		return err
	}
	if view.Items.Items() == 0 {
		return Nof("there is no thread %s, or everything in it has been deleted", thread)
	}
	if view.Items.Tasks > 0 {
		if err := s.pages(ctx, thread, 0, func(task jsontext.Value) error {
			view.Tasks = append(view.Tasks, task)
			return nil
		}); err != nil {
			return err
		}
	}
	if view.Checkpoints, err = checkpoints(ctx, items, thread); err != nil {
		return err
	}
	return s.Print(view, func(w io.Writer) { s.showThread(w, view) })
}

// thread gives access to what the table holds of a thread.
func (s *Session) thread(ctx context.Context, thread string) (*checkpoint.Store, *checkpoint.Eraser, error) {
	if err := task.CheckThreadID(thread); err != nil {
		return nil, nil, Usagef("a thread's id %v", err)
	}
	d, err := s.Deployment(ctx)
	if err != nil {
		return nil, nil, err
	}
	client := dynamodb.NewFromConfig(d.AWS)
	return checkpoint.New(client, d.Table, checkpoint.Options{}), checkpoint.NewEraser(client, d.Table, checkpoint.Options{}), nil
}

// checkpointsPerRead is as many as one answer of the table can hold if their data is some 20 KB.
const checkpointsPerRead = 50

func checkpoints(ctx context.Context, items *checkpoint.Store, thread string) ([]checkpointView, error) {
	views := []checkpointView{}
	for upTo := uint64(0); ; {
		read, err := items.Latest(ctx, thread, upTo, checkpointsPerRead)
		if err != nil {
			return nil, err
		}
		for _, c := range read {
			upTo = c.N - 1
			if c.Data == nil {
				continue // expired
			}
			views = append(views, checkpointView{
				N: c.N, Task: c.Task, TaskID: c.TaskID, Step: c.Step, Attempt: c.Attempt, DurationMS: c.Duration.Milliseconds(),
				Tokens: c.Tokens, Bytes: len(c.Data), Last: c.Last, UpdatedAt: c.UpdatedAt,
			})
		}
		if len(read) == 0 || upTo == 0 {
			return views, nil
		}
	}
}

func (s *Session) showThread(w io.Writer, view threadView) {
	pairs(w, "thread", view.ThreadID, "holds", holdings(view.Items))
	_, _ = fmt.Fprintf(w, "\ntasks, oldest first\n")
	for _, text := range view.Tasks {
		var past api.Past
		if json.Unmarshal(text, &past) == nil {
			s.showPast(w, past)
		}
	}
	_, _ = fmt.Fprintf(w, "\ncheckpoints, newest first\n")
	for _, c := range view.Checkpoints {
		result := ""
		if c.Last {
			result = "  result"
		}
		_, _ = fmt.Fprintf(w, "%6d  %s  %s  %s  attempt %d  %d ms  %d bytes%s\n",
			c.N, moment(&c.UpdatedAt), oneLine(string(c.TaskID)), oneLine(c.Step), c.Attempt, c.DurationMS, c.Bytes, result)
	}
}
