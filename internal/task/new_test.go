package task_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"agentworker/internal/task"
)

func members(t testing.TB, object string) []task.Member {
	t.Helper()
	list, err := task.ParseObject([]byte(object))
	if err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return list
}

func TestNew(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		task, members string
		wantThread    string // "": a new one
		wantFields    string
	}{
		"thread given":     {"rag_query", `{"question":"x","thread_id":"th-1","deep":true}`, "th-1", `{"question":"x","deep":true}`},
		"no thread":        {"rag_query", `{"question":"x"}`, "", `{"question":"x"}`},
		"derived thread":   {"update_ticket", `{"ticket_id":"TK-1","status":"closed"}`, "ticket-TK-1", `{"ticket_id":"TK-1","status":"closed"}`},
		"derived as given": {"update_ticket", `{"thread_id":"ticket-TK-1","ticket_id":"TK-1","status":"closed"}`, "ticket-TK-1", `{"ticket_id":"TK-1","status":"closed"}`},
		"names by case":    {"any", `{"Task_ID":1,"THREAD_ID":"x"}`, "", `{"Task_ID":1,"THREAD_ID":"x"}`},
		"nothing":          {"any", `{}`, "", `{}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := newRegistry(t).New(tt.task, members(t, tt.members), noon)
			if err != nil {
				t.Fatal(err)
			}
			if tt.wantThread != "" && m.Thread != tt.wantThread {
				t.Errorf("thread: got %q, want %q", m.Thread, tt.wantThread)
			}
			if tt.wantThread == "" && !strings.HasPrefix(m.Thread, "th-") {
				t.Errorf("thread: got %q, want a new one", m.Thread)
			}
			if m.Task != tt.task || m.ID.Thread() != m.Thread {
				t.Errorf("got task %q, id %q of thread %q, want %q in its thread", m.Task, m.ID, m.Thread, tt.task)
			}
			if got := ulid.MustParseStrict(m.ID.ULID()).Timestamp(); !got.Equal(noon) {
				t.Errorf("time in the id: got %v, want %v", got, noon)
			}
			if diff := cmp.Diff(members(t, tt.wantFields), m.Fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			other, err := newRegistry(t).New(tt.task, members(t, tt.members), noon)
			if err != nil || other.ID == m.ID {
				t.Errorf("submitted again: got id %q, %v, want another than %q", other.ID, err, m.ID)
			}
		})
	}
}

func TestNewNamesEveryWrongField(t *testing.T) {
	t.Parallel()
	const id = "th-1." + ulidA
	tests := map[string]struct {
		task, members string
		want          task.FieldErrors
	}{
		"unknown type": {"order_pizza", `{"thread_id":5}`, task.FieldErrors{{"task", "must be one of [any careless panicking rag_query update_ticket]"}}},
		"empty type":   {"", `{}`, task.FieldErrors{{"task", "must be one of [any careless panicking rag_query update_ticket]"}}},
		"both fields": {"update_ticket", `{}`, task.FieldErrors{
			{"ticket_id", "must not be empty"}, {"status", "must not be empty"},
		}},
		"thread and fields": {"rag_query", `{"thread_id":"a#b","topics":-1}`, task.FieldErrors{
			{"thread_id", "must consist of letters, digits and _ . : @ = + -, starting with a letter or digit"},
			{"question", "must not be empty"},
			{"topics", "must not be negative"},
		}},
		"thread a number":     {"rag_query", `{"thread_id":5,"question":"x"}`, task.FieldErrors{{"thread_id", "must be a string"}}},
		"thread null":         {"rag_query", `{"thread_id":null,"question":"x"}`, task.FieldErrors{{"thread_id", "must be a string"}}},
		"thread empty":        {"rag_query", `{"thread_id":"","question":"x"}`, task.FieldErrors{{"thread_id", "must not be empty"}}},
		"reserved thread":     {"rag_query", `{"thread_id":"unparsed","question":"x"}`, task.FieldErrors{{"thread_id", `must not be "unparsed", which is reserved`}}},
		"id given":            {"rag_query", `{"task_id":"` + id + `","thread_id":"th-2","question":"x"}`, task.FieldErrors{{"task_id", "must not be given: it is made at submission"}}},
		"id of wrong type":    {"rag_query", `{"task_id":null,"question":"x"}`, task.FieldErrors{{"task_id", "must not be given: it is made at submission"}}},
		"id and field":        {"rag_query", `{"task_id":"x"}`, task.FieldErrors{{"task_id", "must not be given: it is made at submission"}, {"question", "must not be empty"}}},
		"another thread":      {"update_ticket", `{"thread_id":"th-1","ticket_id":"TK-1","status":"closed"}`, task.FieldErrors{{"thread_id", `must be "ticket-TK-1" or left out for a task of this type`}}},
		"field of wrong type": {"rag_query", `{"question":5}`, task.FieldErrors{{"question", "must be a string"}}},
		"ticket too long": {"update_ticket", `{"ticket_id":"` + strings.Repeat("x", 94) + `","status":"closed"}`, task.FieldErrors{
			{"ticket_id", "must be at most 93 characters long, not 94"},
		}},
		"careless thread": {"careless", `{"value":""}`, task.FieldErrors{
			{"thread_id", "follows from the other fields and must consist of letters, digits and _ . : @ = + -, starting with a letter or digit"},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := members(t, tt.members)
			before := members(t, tt.members)
			m, err := newRegistry(t).New(tt.task, given, noon)
			var got task.FieldErrors
			if !errors.As(err, &got) {
				t.Fatalf("got %v, %v, want field errors", m, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("the caller's members were changed (-want +got):\n%s", diff)
			}
		})
	}
}
