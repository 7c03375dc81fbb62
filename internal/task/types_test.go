package task_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/task"
)

type question struct {
	Thread   string `json:"thread_id"`
	Question string `json:"question"`
	Topics   int8   `json:"topics"`
	Deep     bool   `json:"deep"`
	Tags     []string
	Filter   struct {
		Lang string `json:"lang"`
	} `json:"filter"`
	Since time.Time `json:"since"`
}

type update struct {
	TicketID string `json:"ticket_id"`
	Status   string `json:"status"`
}

type anything struct {
	Value jsontext.Value `json:"value"`
}

func newRegistry(t testing.TB) *task.Registry {
	t.Helper()
	nothing := func(context.Context, task.Run, anything) (anything, error) { return anything{}, nil }
	r, err := task.NewRegistry(
		task.Definition[question, question]{
			Name: "rag_query",
			Check: func(in question) (errs task.FieldErrors) {
				if in.Question == "" {
					errs = append(errs, task.FieldError{Field: "question", Problem: "must not be empty"})
				}
				if in.Topics < 0 {
					errs = append(errs, task.FieldError{Field: "topics", Problem: "must not be negative"})
				}
				return errs
			},
			Run: func(_ context.Context, _ task.Run, in question) (question, error) { return in, nil },
		}.Type(),
		task.Definition[update, update]{
			Name: "update_ticket", Ordered: true,
			Check: func(in update) (errs task.FieldErrors) {
				if err := task.CheckTicketID(in.TicketID); err != nil {
					errs = append(errs, task.FieldError{Field: "ticket_id", Problem: err.Error()})
				}
				if in.Status == "" {
					errs = append(errs, task.FieldError{Field: "status", Problem: "must not be empty"})
				}
				return errs
			},
			Thread: func(in update) string { return task.TicketThread(in.TicketID) },
			Run:    func(_ context.Context, _ task.Run, in update) (update, error) { return in, nil },
		}.Type(),
		task.Definition[anything, anything]{
			Name: "any",
			Run:  func(_ context.Context, _ task.Run, in anything) (anything, error) { return in, nil },
		}.Type(),
		task.Definition[anything, anything]{
			Name:   "careless", // its thread follows from an input that nothing has checked
			Thread: func(in anything) string { return "t-" + string(in.Value) },
			Run:    nothing,
		}.Type(),
		task.Definition[anything, anything]{
			Name:  "panicking",
			Check: func(anything) task.FieldErrors { panic("boom") },
			Run:   nothing,
		}.Type(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	if got, want := r.Names(), []string{"any", "careless", "panicking", "rag_query", "update_ticket"}; !slices.Equal(got, want) {
		t.Errorf("names: got %q, want %q", got, want)
	}
	typ, ok := r.Lookup("update_ticket")
	if !ok || typ.Name != "update_ticket" || !typ.Ordered {
		t.Errorf("got %+v, %t, want the ordered type update_ticket", typ, ok)
	}
	if _, ok := r.Lookup("UPDATE_TICKET"); ok {
		t.Error("a name in another case was found, want names to be case-sensitive")
	}
	if _, err := task.NewRegistry(typ, typ); err == nil {
		t.Error("two types of one name: got no error")
	}
	if _, err := task.NewRegistry(task.Type{Name: "handlerless"}); err == nil {
		t.Error("a type without a handler: got no error")
	}
	if _, err := task.NewRegistry(task.Definition[update, update]{}.Type()); err == nil {
		t.Error("a type without a name: got no error")
	}
	if _, err := (&task.Registry{}).New("any", nil, noon); !errors.As(err, new(task.FieldErrors)) {
		t.Errorf("empty registry: got %v, want field errors", err)
	}
}

// noon is the time at which messages are sent.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const ulidA = "01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"
