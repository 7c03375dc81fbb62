package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

// A run that goes on is queued, at the step that comes next, with what it has used; and a client's retry sends no second
// message for it.
func TestARunThatGoesOn(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = forgetful{cfg.Store} })
	body := `{"task":"rag_query","thread_id":"th-1","question":"q"}`
	a := c.accepted(c.post("/agent/tasks", body, "Idempotency-Key", "k"))
	done, err := c.store.Commit(t.Context(), checkpoint.Commit{
		Record: c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute)), Step: "model-1", Data: jsontext.Value(`{}`),
		Tokens: task.Tokens{Input: 120, Output: 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.store.End(t.Context(), done.Record, checkpoint.End{
		Status: checkpoint.Queued, Failure: task.FailureOf(task.Continue()), Step: "tool-1-1-get_ticket",
	}); err != nil {
		t.Fatal(err)
	}

	v := c.task(a.TaskID)
	if want := (task.Tokens{Input: 120, Output: 7}); v.Status != "queued" || v.Step != "tool-1-1-get_ticket" || v.Error != nil || v.NextRetryAt != nil || v.Tokens != want {
		t.Errorf("task: got %+v, want it queued at the tool's step, without an error, with %+v", v, want)
	}
	var page struct {
		ThreadID string     `json:"thread_id"`
		Tasks    []taskView `json:"tasks"`
		Next     *string    `json:"next_cursor"`
	}
	decode(t, c.get("/agent/threads/th-1/history").body, &page)
	var attempts []attemptView
	decode(t, page.Tasks[0].Attempts, &attempts)
	if len(attempts) != 1 || attempts[0].Error == nil || attempts[0].Error.Code != task.CodeContinued || page.Tasks[0].Tokens.Input != 120 {
		t.Errorf("history: got %+v with %+v, want one attempt that is %s", page.Tasks[0], attempts, task.CodeContinued)
	}
	if got := c.get("/agent/threads/th-1/checkpoints/1").body; !strings.Contains(string(got), `"tokens":{"input":120,"output":7}`) {
		t.Errorf("checkpoint: got %s, want the step's tokens", got)
	}

	if again := c.accepted(c.post("/agent/tasks", body, "Idempotency-Key", "k")); again != a {
		t.Errorf("got %+v, want %+v", again, a)
	}
	if sent := c.queue.messages(); len(sent) != 1 {
		t.Errorf("messages: got %d, want 1", len(sent))
	}
}
