package checkpoint_test

import (
	"testing"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	reason := task.Failure{Code: task.CodeDeadLettered, Message: "never reached a worker"}
	handler := task.Failure{Code: "MODEL_DOWN", Message: "no answer"}
	end := func(status checkpoint.Status) func(*testing.T, *fixture, task.ID) {
		return func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if err := f.End(t.Context(), f.claimTask(t, id, "m-1"), checkpoint.End{Status: status, Failure: handler}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		before func(*testing.T, *fixture, task.ID)
		status checkpoint.Status
		reason string
	}{
		"never seen":        {before: func(*testing.T, *fixture, task.ID) {}, status: checkpoint.Failed, reason: task.CodeDeadLettered},
		"failed by worker":  {before: end(checkpoint.Failed), status: checkpoint.Failed, reason: "MODEL_DOWN"},
		"was to be retried": {before: end(checkpoint.Retrying), status: checkpoint.Failed, reason: "MODEL_DOWN"},
		"was to go on": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			end := checkpoint.End{Status: checkpoint.Queued, Failure: task.FailureOf(task.Continue())}
			if err := f.End(t.Context(), f.claimTask(t, id, "m-1"), end); err != nil {
				t.Fatal(err)
			}
		}, status: checkpoint.Failed, reason: task.CodeRunTooLong},
		"worker at it": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			f.claimTask(t, id, "m-1")
		}, status: checkpoint.Running},
		"worker died": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			end(checkpoint.Retrying)(t, f, id)
			f.claimTask(t, id, "m-1")
			f.pass(2 * time.Minute)
		}, status: checkpoint.Failed, reason: task.CodeInterrupted},
		"succeeded": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if _, err := f.Commit(t.Context(), last(f.claimTask(t, id, "m-1"), `1`)); err != nil {
				t.Fatal(err)
			}
		}, status: checkpoint.Succeeded},
		"redriven meanwhile": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			end(checkpoint.Failed)(t, f, id)
			if err := f.End(t.Context(), f.claimTask(t, id, "m-2"), checkpoint.End{Status: checkpoint.Retrying, Failure: handler}); err != nil {
				t.Fatal(err)
			}
		}, status: checkpoint.Retrying, reason: "MODEL_DOWN"},
		"submit thought it was not sent": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if _, _, err := f.Create(t.Context(), task.Message{ID: id, Thread: "th-1"}, *f.now.Load()); err != nil {
				t.Fatal(err)
			}
			if err := f.SubmitFailed(t.Context(), id, "timeout"); err != nil {
				t.Fatal(err)
			}
		}, status: checkpoint.Failed, reason: task.CodeDeadLettered},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			id := task.NewID("th-1", *f.now.Load())
			tt.before(t, f, id)
			letter := checkpoint.DeadLetter{ID: id, Task: "rag_query", MessageID: "m-1", SentAt: *f.now.Load(), Reason: reason}
			for range 2 { // the second time changes nothing
				rec, err := f.DeadLettered(t.Context(), letter)
				if err != nil {
					t.Fatal(err)
				}
				code := ""
				if rec.Error != nil {
					code = rec.Error.Code
				}
				if rec.Status != tt.status || code != tt.reason {
					t.Errorf("task is %s with reason %q, want %s with %q", rec.Status, code, tt.status, tt.reason)
				}
				f.pass(time.Millisecond)
			}
			if tt.status == checkpoint.Failed {
				if rec := f.claimTask(t, id, "m-redriven"); rec.Tries() != 1 {
					t.Errorf("a redrive begins with try %d, want 1", rec.Tries())
				}
			}
		})
	}
}
