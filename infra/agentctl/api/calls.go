package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The statuses in which a task has ended.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
)

// MaxWait is the longest that the API can be asked to wait for a task.
const MaxWait = 25 * time.Second

// Accepted is the answer to a submission.
type Accepted struct {
	TaskID    string `json:"task_id"`
	MessageID string `json:"message_id"`
	ThreadID  string `json:"thread_id"`
	Status    string `json:"status"`

	Raw jsontext.Value `json:"-"` // the answer as it came
}

// Failure is why something failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Tokens are what models have read and written.
type Tokens struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// About is what every answer about a task has. Times are nil while there is none.
type About struct {
	TaskID      string     `json:"task_id"`
	Type        string     `json:"task"`
	ThreadID    string     `json:"thread_id"`
	Status      string     `json:"status"`
	Step        string     `json:"step"`
	Error       *Failure   `json:"error"`
	Tokens      Tokens     `json:"tokens"`
	SubmittedAt *time.Time `json:"submitted_at"`
	UpdatedAt   *time.Time `json:"updated_at"`
	NextRetryAt *time.Time `json:"next_retry_at"`
}

// Ended says whether the task has succeeded or failed.
func (a About) Ended() bool { return a.Status == Succeeded || a.Status == Failed }

// Task is a task as it stands.
type Task struct {
	About
	Attempts int            `json:"attempts"`
	Result   jsontext.Value `json:"result"`

	Raw jsontext.Value `json:"-"`
}

// Attempt is one delivery of a task to a worker.
type Attempt struct {
	Attempt   int        `json:"attempt"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Step      string     `json:"step"`
	Error     *Failure   `json:"error"`
}

// Past is a task with its attempts and finished steps.
type Past struct {
	About
	Attempts []Attempt `json:"attempts"`
	Steps    []struct {
		Step string `json:"step"`
		N    uint64 `json:"n"`
	} `json:"steps"`
}

// Page is a page of a thread's history.
type Page struct {
	ThreadID   string           `json:"thread_id"`
	Tasks      []jsontext.Value `json:"tasks"` // each a [Past]
	NextCursor string           `json:"next_cursor"`
}

// Ticket is a ticket's state.
type Ticket struct {
	TicketID  string     `json:"ticket_id"`
	Status    string     `json:"status"`
	Version   int64      `json:"version"`
	UpdatedAt *time.Time `json:"updated_at"`

	Raw jsontext.Value `json:"-"`
}

// Ask queues a question: body is that of POST /agent/query. With a key the request can be repeated: it is sent again
// while the API cannot be reached, and is the same task.
func (c *Client) Ask(ctx context.Context, body jsontext.Value, key string) (Accepted, error) {
	return c.submit(ctx, "/agent/query", body, key)
}

// Submit queues a task of any type: body is that of POST /agent/tasks.
func (c *Client) Submit(ctx context.Context, body jsontext.Value, key string) (Accepted, error) {
	return c.submit(ctx, "/agent/tasks", body, key)
}

// UpdateTicket queues a change of a ticket: body is that of POST /agent/tickets/{ticket_id}.
func (c *Client) UpdateTicket(ctx context.Context, ticketID string, body jsontext.Value, key string) (Accepted, error) {
	return c.submit(ctx, "/agent/tickets/"+url.PathEscape(ticketID), body, key)
}

func (c *Client) submit(ctx context.Context, path string, body jsontext.Value, key string) (a Accepted, err error) {
	a.Raw, err = c.call(ctx, http.MethodPost, path, body, key, &a)
	return a, err
}

// Task asks how a task stands, and is answered when it has ended or after wait at the latest, in whole seconds up to
// [MaxWait].
func (c *Client) Task(ctx context.Context, id string, wait time.Duration) (t Task, err error) {
	path := "/agent/tasks/" + url.PathEscape(id)
	if seconds := int(min(wait, MaxWait) / time.Second); seconds > 0 {
		path += "?wait=" + strconv.Itoa(seconds)
	}
	t.Raw, err = c.call(ctx, http.MethodGet, path, nil, "", &t)
	return t, err
}

// Result asks for a thread's newest result.
func (c *Client) Result(ctx context.Context, thread string) (jsontext.Value, error) {
	var value jsontext.Value
	return c.call(ctx, http.MethodGet, "/agent/result/"+url.PathEscape(thread), nil, "", &value)
}

// History asks for a page of a thread's tasks: limit of them at most, 1 to 100, from the cursor of the page before on.
func (c *Client) History(ctx context.Context, thread string, limit int, cursor string) (p Page, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	path := fmt.Sprintf("/agent/threads/%s/history?%s", url.PathEscape(thread), query.Encode())
	_, err = c.call(ctx, http.MethodGet, path, nil, "", &p)
	return p, err
}

// Ticket asks for a ticket's state.
func (c *Client) Ticket(ctx context.Context, id string) (t Ticket, err error) {
	t.Raw, err = c.call(ctx, http.MethodGet, "/agent/tickets/"+url.PathEscape(id), nil, "", &t)
	return t, err
}
