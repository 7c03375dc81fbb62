package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/infra/agentctl/deployment"
	"agentworker/internal/agent"
	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

const aboutDLQ = `dlq looks into the dead-letter queues, and puts back or throws away what lies there.

Looking costs nothing: it hides the messages for a moment and makes them visible again. Reasons are the codes of the tasks'
failures, and these, of messages whose task has not failed:
  ` + dlq.CodeSucceeded + `    redelivery would have no effect
  ` + dlq.CodeInProgress + `      a worker is at the task
  ` + dlq.CodeMovedOn + `  the task has come back under a newer message
  ` + dlq.CodeRedriven + `     the redrive of the message was interrupted before it was deleted`

const dlqExamples = `  agentctl dlq ls
  agentctl dlq show th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB
  agentctl dlq redrive --reason MODEL_UNAVAILABLE --dry-run
  agentctl dlq purge --queue ordered --type update_ticket`

func newDLQ(s *Session) *cobra.Command {
	c := &cobra.Command{Use: "dlq", Short: "Look at dead letters, redrive or purge them", Long: aboutDLQ, Example: dlqExamples}
	d := &deadLetters{Session: s}
	flags := c.PersistentFlags()
	flags.StringVar(&d.which, "queue", "both", "whose dead letters: tasks, ordered or both")
	flags.DurationVar(&d.settle, "settle", time.Minute, "how long a queue's counts may lag behind")
	flags.DurationVar(&d.hide, "hide", 30*time.Second, "how long messages stay hidden when agentctl dies, 3s or more")
	for _, name := range []string{"settle", "hide"} {
		_ = flags.MarkHidden(name) // fails only for a flag that there is not
	}
	_ = c.RegisterFlagCompletionFunc("queue", cobra.FixedCompletions([]string{"tasks", "ordered", "both"}, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(newDLQLs(d), newDLQShow(d), newDLQRedrive(d), newDLQPurge(d))
	return c
}

// deadLetters is what the dlq commands have in common.
type deadLetters struct {
	*Session
	which   string
	settle  time.Duration
	hide    time.Duration
	types   []string
	reasons []string
	taskIDs []string
}

// selects adds the flags that say which messages are meant.
func (d *deadLetters) selects(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&d.types, "type", nil, "only tasks of this type; may be repeated")
	flags.StringArrayVar(&d.reasons, "reason", nil, "only those that lie there for this reason, a code as ls shows it; may be repeated")
	flags.StringArrayVar(&d.taskIDs, "task-id", nil, "only this task; may be repeated")
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(registry().Names(), cobra.ShellCompDirectiveNoFileComp))
}

func (d *deadLetters) selection() (deadletter.Selection, error) {
	s := deadletter.Selection{Types: d.types, Reasons: d.reasons}
	for _, text := range d.taskIDs {
		id, err := task.ParseID(text)
		if err != nil {
			return s, Usagef("--task-id %q: %v", text, err)
		}
		s.TaskIDs = append(s.TaskIDs, id)
	}
	if slices.Contains(slices.Concat(d.types, d.reasons), "") {
		return s, Usagef("--type and --reason must not be empty")
	}
	return s, nil
}

// queues are those that are meant, the standard one first.
func (d *deadLetters) queues(ctx context.Context) ([]*deadletter.Queue, error) {
	if !slices.Contains([]string{"tasks", "ordered", "both"}, d.which) {
		return nil, Usagef("--queue is %q: it must be tasks, ordered or both", d.which)
	}
	if d.hide < 3*time.Second {
		return nil, Usagef("--hide is %v: it must be 3s or more", d.hide)
	}
	found, err := d.Deployment(ctx)
	if err != nil {
		return nil, err
	}
	var urls []deployment.Queue
	if d.which != "ordered" {
		urls = append(urls, found.Tasks)
	}
	if d.which != "tasks" {
		urls = append(urls, found.Ordered)
	}
	store := checkpoint.New(dynamodb.NewFromConfig(found.AWS), found.Table, checkpoint.Options{})
	logger := slog.New(slog.NewTextHandler(d.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	tasks := registry().AllowTopics(found.AllowedTopics...)
	var list []*deadletter.Queue
	for _, u := range urls {
		list = append(list, deadletter.New(deadletter.Config{
			URL: u.URL, DeadLetterURL: u.DeadLetterURL, Tasks: tasks, Store: store, SQS: sqs.NewFromConfig(found.AWS),
			Logger: logger, Settle: d.settle, Hide: d.hide,
		}))
	}
	return list, nil
}

// registry reads the messages and runs nothing, so that the types need no parts.
func registry() *task.Registry {
	r, err := task.NewRegistry(agent.Types(agent.Config{})...)
	if err != nil {
		panic(err) // the list of types is fixed, and the functions have it too
	}
	return r
}

// The longest that is shown of a code and of a reason.
const mostCode, mostReason = 60, 300

// writeGroups lists what lies in a queue for which reason.
func (d *deadLetters) writeGroups(w io.Writer, list []deadletter.Group) {
	for _, g := range list {
		kind := g.Task
		if kind == "" {
			kind = "no known task type"
		}
		_, _ = fmt.Fprintf(w, "  %5d  %s  %s", g.Count, d.Bad(dlq.Line(g.Code, mostCode)), kind)
		if !g.Oldest.IsZero() {
			_, _ = fmt.Fprintf(w, "  %s", d.Faint("the oldest "+dlq.Age(time.Since(g.Oldest))+" old"))
		}
		_, _ = fmt.Fprintf(w, "\n         %s\n", dlq.Line(g.Reason, mostReason))
		ids := make([]string, len(g.TaskIDs))
		for i, id := range g.TaskIDs {
			ids[i] = string(id)
		}
		if more := g.Count - len(ids); more > 0 {
			ids = append(ids, fmt.Sprintf("and %d more", more))
		}
		_, _ = fmt.Fprintf(w, "         %s\n", d.Faint(strings.Join(ids, ", ")))
	}
}

// writeOthers is for a selection that nothing fits, as with a misspelt reason.
func writeOthers(w io.Writer, others map[string]int) {
	if len(others) == 0 {
		return
	}
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(others)) {
		codes = append(codes, fmt.Sprintf("%d %s", others[code], dlq.Line(code, mostCode)))
	}
	_, _ = fmt.Fprintf(w, "  Nothing fits the selection. What lies there: %s\n", strings.Join(codes, ", "))
}

func letters(n int) string {
	if n == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", n)
}
