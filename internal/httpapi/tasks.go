package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// getTask shows where one task stands, and its result once it has one; on request once it has ended.
func (a *api) getTask(ctx context.Context, c *call) (answer, error) {
	id, err := task.ParseID(c.PathValue("task_id"))
	if err != nil {
		return answer{}, noSuch("task_id", err)
	}
	wait, err := c.wait()
	if err != nil {
		return answer{}, err
	}
	c.taskID, c.threadID = id, id.Thread()
	record, err := a.await(ctx, id, wait)
	if err != nil {
		return answer{}, orMissing(err, "There is no task of this id, or it has expired.")
	}
	c.messageID = record.MessageID
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	result, err := a.resultOf(ctx, record)
	if err != nil {
		return answer{}, err
	}
	body, err := addTask(new(object), record, len(record.Attempts)).raw("result", result).bytes()
	return answer{body: body}, err
}

// resultOf is null until the task has succeeded, and again when the result has expired before the record.
func (a *api) resultOf(ctx context.Context, r checkpoint.Record) (jsontext.Value, error) {
	if r.Status != checkpoint.Succeeded || r.ResultN == 0 {
		return nil, nil
	}
	last, err := a.Store.Checkpoint(ctx, r.TaskID.Thread(), r.ResultN)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, nil
	}
	return last.Data, err
}

// addTask writes what every call shows of a task. attempts is their number or a list of them.
func addTask(o *object, r checkpoint.Record, attempts any) *object {
	return o.
		add("task_id", r.TaskID).
		add("task", r.Task).
		add("thread_id", r.TaskID.Thread()).
		add("status", r.Status).
		add("attempts", attempts).
		add("step", r.Step).
		add("error", r.Error).
		add("tokens", r.Tokens).
		add("trace_id", r.TraceID).
		add("submitted_at", moment(r.SubmittedAt)).
		add("updated_at", moment(r.UpdatedAt)).
		add("next_retry_at", moment(r.NextRetryAt))
}

const (
	defaultHistoryLimit = 20
	maxHistoryLimit     = 100
)

// getHistory shows a page of a thread's tasks with all of their attempts, oldest first.
func (a *api) getHistory(ctx context.Context, c *call) (answer, error) {
	thread := c.PathValue("thread_id")
	if err := task.CheckThreadID(thread); err != nil {
		return answer{}, noSuch("thread_id", err)
	}
	c.threadID = thread
	limit, after, err := c.page()
	if err != nil {
		return answer{}, err
	}
	// One more than asked for tells whether there is another page.
	records, _, err := a.Store.History(ctx, thread, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	if len(records) == 0 && after == "" {
		return answer{}, notFound("There is no thread of this id, or everything in it has expired.")
	}
	var cursor any
	if len(records) > limit {
		records = records[:limit]
		cursor = encodeCursor(records[limit-1].TaskID)
	}
	tasks := make([]jsontext.Value, 0, len(records))
	for _, r := range records {
		text, err := addTask(new(object), r, attemptViews(r, a.Now())).add("steps", stepViews(r)).bytes()
		if err != nil {
			return answer{}, err
		}
		tasks = append(tasks, text)
	}
	body, err := new(object).
		add("thread_id", thread).
		raw("tasks", list(tasks)).
		add("next_cursor", cursor).
		bytes()
	return answer{body: body}, err
}

type attemptView struct {
	Attempt   int           `json:"attempt"`
	StartedAt any           `json:"started_at"`
	EndedAt   any           `json:"ended_at"`
	Step      string        `json:"step"`
	Error     *task.Failure `json:"error"`
}

// attemptViews lists the attempts, oldest first. One that has no end although no worker can be at it any
// more was cut off, which nobody was left to write down.
func attemptViews(r checkpoint.Record, now time.Time) []attemptView {
	views := make([]attemptView, 0, len(r.Attempts))
	for i, at := range r.Attempts {
		current := i == len(r.Attempts)-1 && r.Live(now)
		if at.EndedAt.IsZero() && at.Error == nil && !current {
			at.Error = &task.Failure{
				Code:    task.CodeInterrupted,
				Message: "the worker died or was stopped before the attempt ended",
			}
		}
		views = append(views, attemptView{i + 1, moment(at.StartedAt), moment(at.EndedAt), at.Step, at.Error})
	}
	return views
}

type stepView struct {
	Step string `json:"step"`
	N    uint64 `json:"n"`
}

// stepViews lists the finished steps with the numbers of their checkpoints.
func stepViews(r checkpoint.Record) []stepView {
	views := make([]stepView, 0, len(r.Steps))
	for _, s := range r.Steps {
		views = append(views, stepView{s.Name, s.N})
	}
	return views
}

// page reads limit and cursor. after is the ULID that the cursor stands for.
func (c *call) page() (limit int, after string, err error) {
	params, err := c.query("limit", "cursor")
	if err != nil {
		return 0, "", err
	}
	var errs task.FieldErrors
	limit = defaultHistoryLimit
	if text, given := params["limit"]; given {
		var problem string
		if limit, problem = wholeNumber(text, 1, maxHistoryLimit); problem != "" {
			errs = append(errs, task.FieldError{Field: "limit", Problem: problem})
		}
	}
	if text, given := params["cursor"]; given {
		if after, err = decodeCursor(text); err != nil {
			errs = append(errs, task.FieldError{Field: "cursor", Problem: "must be a next_cursor of this thread's history, or left out"})
		}
	}
	if len(errs) > 0 {
		return 0, "", errs
	}
	return limit, after, nil
}

// A cursor is the ULID of the last task shown, in a form that nobody is tempted to make up.
func encodeCursor(id task.ID) string { return base64.RawURLEncoding.EncodeToString([]byte(id.ULID())) }

func decodeCursor(text string) (string, error) {
	plain, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("decode cursor: %w", err)
	}
	u, err := ulid.ParseStrict(string(plain))
	if err != nil {
		return "", fmt.Errorf("decode cursor: %w", err)
	}
	return u.String(), nil
}

// getTicket shows a ticket's state.
func (a *api) getTicket(ctx context.Context, c *call) (answer, error) {
	id := c.PathValue("ticket_id")
	if err := task.CheckTicketID(id); err != nil {
		return answer{}, noSuch("ticket_id", err)
	}
	c.threadID = task.TicketThread(id)
	ticket, err := a.Store.Ticket(ctx, id)
	if err != nil {
		return answer{}, orMissing(err, "There is no ticket of this id, or no update of it has succeeded yet.")
	}
	body, err := new(object).
		add("ticket_id", ticket.ID).
		add("status", ticket.Status).
		add("version", ticket.Version).
		add("updated_at", moment(ticket.UpdatedAt)).
		bytes()
	return answer{body: body}, err
}

// noSuch says why nothing can have an id of this form. To whoever looks for it, it is simply not there.
func noSuch(field string, err error) *problem {
	p := notFound("There is nothing of this id, and cannot be.")
	p.fields = task.FieldErrors{{Field: field, Problem: err.Error()}}
	return p
}

func orMissing(err error, detail string) error {
	if errors.Is(err, checkpoint.ErrNotFound) {
		return notFound("%s", detail)
	}
	return err
}
