package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/api"
)

// submission is what the flags of submit say.
type submission struct {
	thread, task, ticket, status, key string
	ordered, wait                     bool
	timeout                           time.Duration
}

func newSubmit(s *Session) *cobra.Command {
	var o submission
	c := &cobra.Command{
		Use:   "submit [QUESTION | BODY]",
		Short: "Queue a question, a change of a ticket, or a task of any type",
		Long: `submit queues one task and says under which id. A question is the text of the argument. With
--task the argument is the task's body, a JSON object with the type's own fields; "-" reads the
argument from standard input.

It sends an Idempotency-Key of its own unless you give one, so that a request whose answer was
lost is not queued twice.`,
		Example: `  agentctl submit "What is a dead-letter queue?"
  agentctl submit "And how do I empty it?" --thread th-1 --ordered --wait
  agentctl submit --ticket TK-1 --status closed
  agentctl submit --task agent_run '{"question":"Close TK-2.","max_steps":5}' --thread th-2
  agentctl submit --task agent_run - < task.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.submit(c.Context(), o, args) },
	}
	f := c.Flags()
	f.StringVar(&o.thread, "thread", "", "thread of the question or task; a new one when left out")
	f.BoolVar(&o.ordered, "ordered", false, "run it in the order of submission within its thread")
	f.StringVar(&o.task, "task", "", "type of the task")
	f.StringVar(&o.ticket, "ticket", "", "id of the ticket to change")
	f.StringVar(&o.status, "status", "", "new status of the ticket")
	f.StringVar(&o.key, "idempotency-key", "", "the same key and task within a day is the same task, not another one")
	f.BoolVar(&o.wait, "wait", false, "wait until the task has ended, and show its result; exit code 1 when it has failed")
	f.DurationVar(&o.timeout, "timeout", 0, "with --wait: how long at most; 0: until it has ended")
	c.MarkFlagsRequiredTogether("ticket", "status")
	c.MarkFlagsMutuallyExclusive("ticket", "task")
	c.MarkFlagsMutuallyExclusive("ticket", "thread")
	c.MarkFlagsMutuallyExclusive("ticket", "ordered")
	return c
}

func (s *Session) submit(ctx context.Context, o submission, args []string) error {
	text, err := s.argument(args)
	if err != nil {
		return err
	}
	if (text == "") != (o.ticket != "") {
		return Usagef("give a question, or a type and its body with --task, or --ticket and --status alone")
	}
	body, err := o.body(text)
	if err != nil {
		return err
	}
	client, err := s.API(ctx)
	if err != nil {
		return err
	}
	if o.key == "" {
		o.key = "agentctl-" + ulid.Make().String()
	}
	var accepted api.Accepted
	switch {
	case o.ticket != "":
		accepted, err = client.UpdateTicket(ctx, o.ticket, body, o.key)
	case o.task != "":
		accepted, err = client.Submit(ctx, body, o.key)
	default:
		accepted, err = client.Ask(ctx, body, o.key)
	}
	if err != nil {
		return err
	}
	if o.wait {
		s.Note("queued as %s", accepted.TaskID)
		return s.waitFor(ctx, client, accepted.TaskID, o.timeout)
	}
	return s.Print(accepted.Raw, func(w io.Writer) {
		pairs(w, "task", accepted.TaskID, "thread", accepted.ThreadID, "status", s.status(accepted.Status))
	})
}

// maxInput is more than the API takes.
const maxInput = 8 << 20

// argument is the only argument, or what standard input holds for "-".
func (s *Session) argument(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", nil
	case args[0] != "-":
		return args[0], nil
	}
	text, err := io.ReadAll(io.LimitReader(s.In, maxInput))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	return string(text), nil
}

// body is the request's. Of a task's own fields every byte survives.
func (o submission) body(text string) (jsontext.Value, error) {
	if o.ticket != "" {
		return json.Marshal(struct {
			Status string `json:"status"`
		}{o.status})
	}
	type delivery struct {
		Task     string `json:"task,omitzero"`
		Thread   string `json:"thread_id,omitzero"`
		Question string `json:"question,omitzero"`
		Ordered  bool   `json:"ordered,omitzero"`
	}
	if o.task == "" {
		return json.Marshal(delivery{Thread: o.thread, Question: text, Ordered: o.ordered})
	}
	fields := jsontext.Value(text)
	if !fields.IsValid() || fields.Kind() != '{' {
		return nil, Usagef("the body of a task must be one JSON object, such as '{\"question\":\"…\"}'")
	}
	head, err := json.Marshal(delivery{Task: o.task, Thread: o.thread, Ordered: o.ordered})
	if err != nil {
		return nil, err
	}
	return joined(head, fields)
}

// joined is the members of both objects in one.
func joined(a, b jsontext.Value) (jsontext.Value, error) {
	if err := b.Compact(); err != nil {
		return nil, Usagef("the body of a task is no JSON: %v", err)
	}
	if len(b) == len("{}") {
		return a, nil
	}
	both := append(append(a[:len(a)-1:len(a)-1], ','), b[1:]...)
	if !both.IsValid() {
		return nil, Usagef("the body of a task must not hold what a flag says: task, thread_id or ordered")
	}
	return both, nil
}
