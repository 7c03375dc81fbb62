package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/api"
)

func newStatus(s *Session) *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "status TASK_ID",
		Short: "Show where a task stands, why it failed and when it is tried again",
		Long: `status shows a task as it stands. Its exit code is 1 when the task has failed. With --watch it
goes on until the task has ended, with a line for every change; with --json these are JSON
documents, one a line.`,
		Example: `  agentctl status th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB
  agentctl status th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB --watch`,
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := s.API(c.Context())
			if err != nil {
				return err
			}
			if watch {
				return s.watch(c.Context(), client, args[0])
			}
			t, err := client.Task(c.Context(), args[0], 0)
			if err != nil {
				return err
			}
			return s.verdict(t)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on until the task has ended")
	return c
}

// verdict prints a task; that it failed is a no.
func (s *Session) verdict(t api.Task) error {
	if err := s.Print(t.Raw, func(w io.Writer) { s.showTask(w, t) }); err != nil {
		return err
	}
	if t.Status == api.Failed {
		return ErrNo
	}
	return nil
}

// waitFor prints a task when it has ended. That it has not within the timeout (0: none) is a no.
func (s *Session) waitFor(ctx context.Context, client *api.Client, id string, timeout time.Duration) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if timeout > 0 {
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var t api.Task
	for !t.Ended() {
		var err error
		t, err = client.Task(waiting, id, api.MaxWait)
		if errors.Is(waiting.Err(), context.DeadlineExceeded) {
			return Nof("task %s has not ended within %v; it goes on: agentctl status %s --watch", id, timeout, id)
		}
		if err != nil {
			return err
		}
	}
	return s.verdict(t)
}

// watchInterval is how long a change may go unnoticed.
const watchInterval = 2 * time.Second

// watch tells of a task's changes until it has ended, and then prints it.
func (s *Session) watch(ctx context.Context, client *api.Client, id string) error {
	told := ""
	for {
		t, err := client.Task(ctx, id, 0)
		if told != "" {
			t, err = client.Task(ctx, id, watchInterval)
		}
		if err != nil {
			return err
		}
		if now := fmt.Sprint(t.Status, t.Attempts, t.Step, failure(t.Error)); now != told {
			told = now
			if err := s.change(t); err != nil {
				return err
			}
		}
		if !t.Ended() {
			continue
		}
		if !s.JSON {
			_, _ = fmt.Fprintln(s.Out)
			return s.verdict(t)
		}
		if t.Status == api.Failed {
			return ErrNo
		}
		return nil
	}
}

func (s *Session) change(t api.Task) error {
	if s.JSON {
		line := t.Raw.Clone()
		if err := line.Compact(); err != nil {
			return err
		}
		if err := json.MarshalWrite(s.Out, line); err != nil {
			return err
		}
		_, err := fmt.Fprintln(s.Out)
		return err
	}
	text := fmt.Sprintf("%s  %s  attempt %d", moment(t.UpdatedAt), s.status(t.Status), t.Attempts)
	if t.Step != "" {
		text += "  step " + oneLine(t.Step)
	}
	if t.Error != nil {
		text += "  " + failure(t.Error)
	}
	if t.NextRetryAt != nil {
		text += "  next try " + moment(t.NextRetryAt)
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}
