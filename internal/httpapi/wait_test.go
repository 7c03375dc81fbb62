package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

// table is a table with one task, whose reads are counted.
type table struct {
	httpapi.Store
	mu     sync.Mutex
	record checkpoint.Record
	reads  int
}

func (s *table) Record(ctx context.Context, _ task.ID) (checkpoint.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.record, ctx.Err()
}

func (s *table) set(status checkpoint.Status, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Status, s.record.NextRetryAt = status, next
}

// waiting runs a request against a table with one task, in time that passes by itself.
type waiting struct {
	*testing.T
	table *table
	api   http.Handler
	id    task.ID
}

func inTime(t *testing.T, test func(w *waiting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		id := task.NewID("th-1", time.Now())
		s := &table{record: checkpoint.Record{TaskID: id, Task: "echo", Status: checkpoint.Queued, SubmittedAt: time.Now()}}
		test(&waiting{t, s, httpapi.New(httpapi.Config{Store: s, Tasks: registry(t), Logger: quiet()}), id})
	})
}

// get gives the answer and how long it took.
func (w *waiting) get(ctx context.Context, query string) (answer string, took time.Duration) {
	w.Helper()
	began := time.Now()
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/agent/tasks/"+string(w.id)+query, nil))
	if rec.Code != http.StatusOK {
		w.Fatalf("%s: got %d %s", query, rec.Code, rec.Body)
	}
	return rec.Body.String(), time.Since(began)
}

func TestWaitEndsWithTheTask(t *testing.T) {
	t.Parallel()
	for _, status := range []checkpoint.Status{checkpoint.Succeeded, checkpoint.Failed} {
		inTime(t, func(w *waiting) {
			w.table.set(checkpoint.Running, time.Time{})
			time.AfterFunc(7*time.Second, func() { w.table.set(status, time.Time{}) })
			answer, took := w.get(w.Context(), "?wait=20")
			if !strings.Contains(answer, `"status":"`+string(status)+`"`) || took < 7*time.Second || took > 9500*time.Millisecond {
				w.Errorf("got %s after %v, want %s after 7s and one pause at most", answer, took, status)
			}
		})
	}
}

func TestWaitIsNoLongerThanAskedFor(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]time.Duration{"": 0, "?wait=0": 0, "?wait=1": time.Second, "?wait=25": 25 * time.Second} {
		inTime(t, func(w *waiting) {
			answer, took := w.get(w.Context(), query)
			if !strings.Contains(answer, `"status":"queued"`) || took != want {
				w.Errorf("%q: got %s after %v, want it queued after %v", query, answer, took, want)
			}
		})
	}
}

func TestWaitReadsSparingly(t *testing.T) {
	t.Parallel()
	inTime(t, func(w *waiting) {
		w.table.set(checkpoint.Succeeded, time.Time{})
		if _, took := w.get(w.Context(), "?wait=25"); took != 0 || w.table.reads != 1 {
			w.Errorf("a task that has ended: got %d reads in %v, want one at once", w.table.reads, took)
		}
	})
	inTime(t, func(w *waiting) {
		if w.get(w.Context(), "?wait=25"); w.table.reads < 10 || w.table.reads > 25 {
			w.Errorf("25 s: got %d reads, want 10 to 25", w.table.reads)
		}
	})
	inTime(t, func(w *waiting) {
		w.table.set(checkpoint.Retrying, time.Now().Add(15*time.Second))
		time.AfterFunc(15*time.Second-time.Millisecond, func() { w.table.set(checkpoint.Succeeded, time.Time{}) })
		if _, took := w.get(w.Context(), "?wait=25"); w.table.reads != 2 || took != 15*time.Second {
			w.Errorf("a task whose next try is in 15 s: got %d reads in %v, want one more then", w.table.reads, took)
		}
	})
}

// A function with less time than the wait takes still answers.
func TestWaitEndsBeforeTheFunction(t *testing.T) {
	t.Parallel()
	inTime(t, func(w *waiting) {
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		if _, took := w.get(ctx, "?wait=25"); took != 8*time.Second {
			w.Errorf("got an answer after %v of 10s, want 2s left for it", took)
		}
	})
}

func TestWaitEndsWhenTheClientGoesAway(t *testing.T) {
	t.Parallel()
	inTime(t, func(w *waiting) {
		ctx, cancel := context.WithCancel(w.Context())
		time.AfterFunc(5500*time.Millisecond, cancel)
		if _, took := w.get(ctx, "?wait=25"); took != 5500*time.Millisecond {
			w.Errorf("got an end after %v, want it at once", took)
		}
		reads := w.table.reads
		time.Sleep(time.Minute)
		if w.table.reads != reads {
			w.Errorf("reads: got %d more, want none for nobody", w.table.reads-reads)
		}
	})
}

func TestWaitsThatAreRefused(t *testing.T) {
	t.Parallel()
	c := start(t)
	a := c.accepted(c.post("/agent/query", question))
	for _, query := range []string{"wait=26", "wait=-1", "wait=x", "wait=", "wait=1.5", "wait=1e1", "wait=%2B1", "wait=99999999999999999999", "wait=1&wait=1", "weit=1"} {
		c.problem(c.get("/agent/tasks/"+string(a.TaskID)+"?"+query), 422, httpapi.CodeInvalidField)
	}
	c.problem(c.get("/agent/tasks/"+string(a.TaskID)+"?wait=%zz"), 400, httpapi.CodeMalformedQuery)
	c.problem(c.get("/agent/tasks/"+string(task.NewID("th-1", time.Now()))+"?wait=25"), 404, httpapi.CodeNotFound)
}
