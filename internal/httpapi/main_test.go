package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

// chain is the API over a real table and a queue that keeps what is sent.
type chain struct {
	*testing.T
	handler http.Handler
	store   *checkpoint.Store
	queue   *queue
	logs    *logs
	url     string
	client  *http.Client
}

func start(t *testing.T, change ...func(*httpapi.Config)) *chain {
	t.Helper()
	c := parts(t, change...)
	server := httptest.NewServer(c.handler)
	t.Cleanup(server.Close)
	c.url, c.client = server.URL, server.Client()
	c.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.T = t
	return c
}

// parts is a chain without a server.
func parts(t testing.TB, change ...func(*httpapi.Config)) *chain {
	t.Helper()
	client := dynamodbtest.New(t)
	c := &chain{queue: newQueue(), logs: new(logs)}
	c.store = checkpoint.New(client, dynamodbtest.Table(t, client), checkpoint.Options{})
	cfg := httpapi.Config{
		Tasks:           registry(t),
		Store:           c.store,
		Queue:           c.queue,
		QueueURL:        standardURL,
		OrderedQueueURL: orderedURL,
		Timeout:         time.Minute,
		Logger:          slog.New(slog.NewJSONHandler(c.logs, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	c.handler = httpapi.New(cfg)
	if test, ok := t.(*testing.T); ok {
		c.handler = described(test, c.handler)
	}
	return c
}

type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

type queryInput struct {
	Thread   string `json:"thread_id"`
	Question string `json:"question"`
}

type ticketInput struct {
	Ticket string `json:"ticket_id"`
	Status string `json:"status"`
}

type echoInput struct {
	Size int `json:"size"`
}

func registry(t testing.TB) *task.Registry {
	t.Helper()
	r, err := testTypes()
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	return r
}

func testTypes() (*task.Registry, error) {
	return task.NewRegistry(
		task.Definition[queryInput, string]{
			Name: "rag_query",
			Check: func(in queryInput) (errs task.FieldErrors) {
				if in.Question == "" {
					errs = append(errs, task.FieldError{Field: "question", Problem: "must not be empty"})
				}
				return errs
			},
		}.Type(),
		task.Definition[ticketInput, string]{
			Name: "update_ticket", Ordered: true,
			Check: func(in ticketInput) (errs task.FieldErrors) {
				if err := task.CheckTicketID(in.Ticket); err != nil {
					errs = append(errs, task.FieldError{Field: "ticket_id", Problem: err.Error()})
				}
				if in.Status != "open" && in.Status != "closed" {
					errs = append(errs, task.FieldError{Field: "status", Problem: "must be open or closed"})
				}
				return errs
			},
			Thread: func(in ticketInput) string { return task.TicketThread(in.Ticket) },
		}.Type(),
		task.Definition[echoInput, string]{Name: "echo"}.Type(),
	)
}

// reply is a response with its body read.
type reply struct {
	*http.Response
	body []byte
}

func (c *chain) do(r *http.Request) reply {
	c.Helper()
	resp, err := c.try(r)
	if err != nil {
		c.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return resp
}

func (c *chain) try(r *http.Request) (reply, error) {
	resp, err := c.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp, body}, err
}

func (c *chain) request(method, target, body string, headers ...string) *http.Request {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), method, c.url+target, strings.NewReader(body))
	if err != nil {
		c.Fatalf("%s %s: %v", method, target, err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func (c *chain) get(target string) reply {
	c.Helper()
	return c.do(c.request(http.MethodGet, target, ""))
}

func (c *chain) post(target, body string, headers ...string) reply {
	c.Helper()
	if body != "" {
		headers = append([]string{"Content-Type", "application/json"}, headers...)
	}
	return c.do(c.request(http.MethodPost, target, body, headers...))
}

type acceptance struct {
	TaskID    task.ID `json:"task_id"`
	MessageID string  `json:"message_id"`
	ThreadID  string  `json:"thread_id"`
	Status    string  `json:"status"`
}

// accepted reads a 202.
func (c *chain) accepted(r reply) acceptance {
	c.Helper()
	if r.StatusCode != http.StatusAccepted {
		c.Fatalf("status: got %d %s, want 202", r.StatusCode, r.body)
	}
	var a acceptance
	decode(c.T, r.body, &a)
	return a
}

type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Errors []struct {
		Field   string `json:"field"`
		Problem string `json:"problem"`
	} `json:"errors"`
}

func (p problem) fields() []string {
	names := []string{}
	for _, e := range p.Errors {
		names = append(names, e.Field)
	}
	return names
}

// problem reads a problem document and checks that it is a whole one.
func (c *chain) problem(r reply, status int, code string) problem {
	c.Helper()
	var p problem
	decode(c.T, r.body, &p)
	if r.StatusCode != status || p.Status != status || p.Code != code {
		c.Errorf("got %d %s, want %d %s", r.StatusCode, r.body, status, code)
	}
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		c.Errorf("content type: got %q, want application/problem+json", got)
	}
	if p.Title != http.StatusText(status) || p.Detail == "" || p.Type != "about:blank" {
		c.Errorf("incomplete problem document: %s", r.body)
	}
	return p
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
}

// claim is what a worker does with a message first.
func (c *chain) claim(id task.ID, messageID string, until time.Time) checkpoint.Record {
	c.Helper()
	record, err := c.store.Claim(c.Context(), checkpoint.ClaimRequest{
		ID: id, Task: "rag_query", MessageID: messageID, SentAt: time.Now(),
		Owner: "owner " + string(id) + until.String(), Until: until,
	})
	if err != nil {
		c.Fatalf("claim %s: %v", id, err)
	}
	return record
}

// commit is what a worker does with a finished step.
func (c *chain) commit(record checkpoint.Record, step, data string, last bool, ticket *task.Ticket) checkpoint.Committed {
	c.Helper()
	done, err := c.store.Commit(context.WithoutCancel(c.Context()), checkpoint.Commit{
		Record: record, Step: step, Data: jsontext.Value(data), Last: last, Duration: 1234 * time.Millisecond, Ticket: ticket,
	})
	if err != nil {
		c.Fatalf("commit %s of %s: %v", step, record.TaskID, err)
	}
	return done
}

// run submits a question and plays the worker to the end.
func (c *chain) run(thread, data string) acceptance {
	c.Helper()
	a := c.accepted(c.post("/agent/query", `{"thread_id":"`+thread+`","question":"why?"}`))
	record := c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute))
	record = c.commit(record, "retrieve", `["passage"]`, false, nil).Record
	c.commit(record, "generate", data, true, nil)
	return a
}
