package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/task"
)

const aboutDLQShow = `show prints a dead letter, with its attributes and body, and what its task's record says: every attempt, how it ended, and the
last error. ID is a task id or a message id.`

const dlqShowExamples = `  agentctl dlq show th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB
  agentctl --json dlq show 2f9c1c4e-5b0c-4f0f-9a55-0a0b3ce8a1d2 | jq -r '.dead_letters[0].body'`

func newDLQShow(d *deadLetters) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a dead letter beside its task's history", Long: aboutDLQShow, Example: dlqShowExamples, Args: oneID,
		RunE: func(c *cobra.Command, args []string) error {
			queues, err := d.queues(c.Context())
			if err != nil {
				return err
			}
			var sheets []deadletter.Sheet
			for _, q := range queues {
				found, err := q.Show(c.Context(), args[0])
				if err != nil {
					return err
				}
				sheets = append(sheets, found...)
			}
			if len(sheets) == 0 {
				return Nof("no dead letter of %q was found", args[0])
			}
			views := []letterView{}
			for _, s := range sheets {
				views = append(views, viewOf(s))
			}
			return d.Print(map[string]any{"dead_letters": views}, func(w io.Writer) {
				for i, v := range views {
					if i > 0 {
						_, _ = fmt.Fprintln(w)
					}
					d.writeLetter(w, v)
				}
			})
		},
	}
}

// letterView is a dead letter as it is printed.
type letterView struct {
	Queue      string            `json:"queue"`
	MessageID  string            `json:"message_id"`
	SentAt     time.Time         `json:"sent_at,omitzero"`
	Code       string            `json:"code"`
	Reason     string            `json:"reason"`
	System     map[string]string `json:"system_attributes"`
	Attributes map[string]string `json:"attributes"`
	Body       string            `json:"body"`
	Task       recordView        `json:"task"`
}

type recordView struct {
	TaskID      task.ID       `json:"task_id"`
	Type        string        `json:"type"`
	Status      string        `json:"status"`
	Error       *failureView  `json:"error,omitzero"`
	MessageID   string        `json:"message_id,omitzero"`
	SubmittedAt time.Time     `json:"submitted_at,omitzero"`
	UpdatedAt   time.Time     `json:"updated_at,omitzero"`
	Attempts    []attemptView `json:"attempts"`
	Redrives    []redriveView `json:"redrives"`
}

type failureView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type attemptView struct {
	StartedAt time.Time    `json:"started_at"`
	EndedAt   time.Time    `json:"ended_at,omitzero"`
	MessageID string       `json:"message_id"`
	Step      string       `json:"step,omitzero"`
	Error     *failureView `json:"error,omitzero"`
}

type redriveView struct {
	MessageID string    `json:"message_id"`
	Code      string    `json:"code"`
	At        time.Time `json:"at"`
	CopyID    string    `json:"copy_id,omitzero"`
}

func viewOf(s deadletter.Sheet) letterView {
	v := letterView{
		Queue: s.Queue, MessageID: s.MessageID, SentAt: s.SentAt.UTC(), Code: s.Code, Reason: s.Reason,
		System: s.System, Attributes: map[string]string{}, Body: s.Body,
		Task: recordView{
			TaskID: s.TaskID, Type: s.Record.Task, Status: string(s.Record.Status), Error: failureOf(s.Record.Error), MessageID: s.Record.MessageID,
			SubmittedAt: s.Record.SubmittedAt, UpdatedAt: s.Record.UpdatedAt, Attempts: []attemptView{}, Redrives: []redriveView{},
		},
	}
	for name, a := range s.Attributes {
		v.Attributes[name] = attributeText(a)
	}
	for _, a := range s.Record.Attempts {
		v.Task.Attempts = append(v.Task.Attempts, attemptView{a.StartedAt, a.EndedAt, a.MessageID, a.Step, failureOf(a.Error)})
	}
	for _, r := range s.Record.Redrives {
		v.Task.Redrives = append(v.Task.Redrives, redriveView{r.MessageID, r.Code, r.At, r.To})
	}
	return v
}

func failureOf(f *task.Failure) *failureView {
	if f == nil {
		return nil
	}
	return &failureView{f.Code, f.Message}
}

func attributeText(a types.MessageAttributeValue) string {
	if a.StringValue == nil {
		return fmt.Sprintf("%s of %d bytes", aws.ToString(a.DataType), len(a.BinaryValue))
	}
	return *a.StringValue
}

func (d *deadLetters) writeLetter(w io.Writer, v letterView) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(table, "  %s\t%s\n", name, printable(value))
		}
	}
	heading := func(text string) {
		_ = table.Flush() // the writer beneath it keeps its first error
		_, _ = fmt.Fprintln(w, text)
	}
	heading("Message")
	row("queue", v.Queue)
	row("message id", v.MessageID)
	row("sent", instant(v.SentAt))
	for _, name := range slices.Sorted(maps.Keys(v.System)) {
		if name != string(types.MessageSystemAttributeNameSentTimestamp) {
			row(name, v.System[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Attributes)) {
		row("attribute "+name, v.Attributes[name])
	}
	heading("Task")
	row("task id", string(v.Task.TaskID))
	row("type", v.Task.Type)
	row("status", v.Task.Status)
	row("submitted", instant(v.Task.SubmittedAt))
	row("updated", instant(v.Task.UpdatedAt))
	row("lies here for", v.Code+": "+v.Reason)
	if v.Task.Error != nil {
		row("last error", v.Task.Error.Code+": "+v.Task.Error.Message)
	}
	for i, a := range v.Task.Attempts {
		row(fmt.Sprintf("attempt %d", i+1), describeAttempt(a))
	}
	for _, r := range v.Task.Redrives {
		row("redriven", instant(r.At)+" for "+r.Code+", message "+r.MessageID+" as "+copyText(r.CopyID))
	}
	heading("Body")
	_, _ = fmt.Fprintln(w, printable(v.Body))
}

func describeAttempt(a attemptView) string {
	text := instant(a.StartedAt)
	switch {
	case a.EndedAt.IsZero():
		text += " and has not ended"
	default:
		text += " for " + a.EndedAt.Sub(a.StartedAt).Round(time.Millisecond).String()
	}
	if a.Step != "" {
		text += ", step " + a.Step
	}
	if a.Error != nil {
		text += ", " + a.Error.Code + ": " + a.Error.Message
	}
	return text
}

func copyText(id string) string {
	if id == "" {
		return "a copy that was not confirmed"
	}
	return id
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
