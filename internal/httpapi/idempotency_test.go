package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/checkpoint"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

const question = `{"thread_id":"th-1","question":"why?"}`

func TestSameKeyAndBodyIsTheSameTask(t *testing.T) {
	t.Parallel()
	c := start(t)
	first := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k1"))
	for name, r := range map[string]*http.Request{
		"again":        c.request("POST", "/agent/query", question, "Idempotency-Key", "k1"),
		"other order":  c.request("POST", "/agent/query", ` { "question":"wh\u0079?" , "thread_id":"th-1"}`, "Idempotency-Key", "k1"),
		"defaults":     c.request("POST", "/agent/query", `{"thread_id":"th-1","question":"why?","priority":1,"ordered":false,"delay_seconds":0}`, "Idempotency-Key", "k1"),
		"query string": c.request("POST", "/agent/query?question=why%3F&thread_id=th-1", "", "Idempotency-Key", "k1"),
		"as a task":    c.request("POST", "/agent/tasks", `{"task":"rag_query","thread_id":"th-1","question":"why?"}`, "Idempotency-Key", "k1"),
	} {
		if again := c.accepted(c.do(r)); again != first {
			t.Errorf("%s: got %+v, want %+v", name, again, first)
		}
	}
	if sent := c.queue.messages(); len(sent) != 1 {
		t.Errorf("messages: got %d, want 1", len(sent))
	}
	if other := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k2")); other.TaskID == first.TaskID {
		t.Errorf("another key: got the same task %s", other.TaskID)
	}
	if other := c.accepted(c.post("/agent/query", question)); other.TaskID == first.TaskID {
		t.Errorf("no key: got the same task %s", other.TaskID)
	}
}

func TestOrderOfMembersMakesNoDifference(t *testing.T) {
	t.Parallel()
	c := start(t)
	first := c.accepted(c.post("/agent/tasks", `{"task":"echo","o":{"a":[1,{"x":1,"y":2}],"b":null},"p":1}`, "Idempotency-Key", "k"))
	again := c.accepted(c.post("/agent/tasks", `{"p":1,"o":{"b":null,"a":[1,{"y":2,"x":1}]},"task":"echo"}`, "Idempotency-Key", "k"))
	if again != first {
		t.Errorf("got %+v, want %+v", again, first)
	}
}

// A new thread is made for each request, and belongs to the task that the key stands for.
func TestSameKeyWithoutThreadKeepsTheFirstThread(t *testing.T) {
	t.Parallel()
	c := start(t)
	first := c.accepted(c.post("/agent/query", `{"question":"why?"}`, "Idempotency-Key", "k"))
	if again := c.accepted(c.post("/agent/query", `{"question":"why?"}`, "Idempotency-Key", "k")); again != first {
		t.Errorf("got %+v, want %+v", again, first)
	}
}

func TestSameKeyWithAnotherBodyIsRefused(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.accepted(c.post("/agent/tasks", `{"task":"echo","thread_id":"th-1","n":9007199254740993,"l":[1,2]}`, "Idempotency-Key", "k"))
	for name, body := range map[string]string{
		"another value":      `{"task":"echo","thread_id":"th-1","n":1,"l":[1,2]}`,
		"next large number":  `{"task":"echo","thread_id":"th-1","n":9007199254740992,"l":[1,2]}`,
		"another list order": `{"task":"echo","thread_id":"th-1","n":9007199254740993,"l":[2,1]}`,
		"another thread":     `{"task":"echo","thread_id":"th-2","n":9007199254740993,"l":[1,2]}`,
		"no thread":          `{"task":"echo","n":9007199254740993,"l":[1,2]}`,
		"another type":       `{"task":"rag_query","question":"x","thread_id":"th-1","n":9007199254740993,"l":[1,2]}`,
		"another queue":      `{"task":"echo","thread_id":"th-1","n":9007199254740993,"l":[1,2],"ordered":true}`,
		"another delay":      `{"task":"echo","thread_id":"th-1","n":9007199254740993,"l":[1,2],"delay_seconds":1}`,
	} {
		r := c.post("/agent/tasks", body, "Idempotency-Key", "k")
		if p := c.problem(r, 409, httpapi.CodeIdempotencyKeyReuse); t.Failed() {
			t.Fatalf("%s: got %+v", name, p)
		}
	}
	if sent := c.queue.messages(); len(sent) != 1 {
		t.Errorf("messages: got %d, want 1", len(sent))
	}
}

func TestKeysOfDifferentCallersAreDifferent(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) {
		cfg.Caller = func(r *http.Request) string { return r.Header.Get("X-Test-Caller") }
	})
	first := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "bk", "X-Test-Caller", "a"))
	second := c.accepted(c.post("/agent/query", `{"thread_id":"th-1","question":"how?"}`, "Idempotency-Key", "k", "X-Test-Caller", "ab"))
	if first.TaskID == second.TaskID {
		t.Errorf("got %s for both", first.TaskID)
	}
}

func TestConcurrentRequestsWithOneKeyMakeOneTask(t *testing.T) {
	t.Parallel()
	c := start(t)
	const requests = 10
	var group errgroup.Group
	replies := make([]reply, requests)
	for i := range replies {
		r := c.request("POST", "/agent/query", `{"question":"why?"}`, "Idempotency-Key", "k")
		group.Go(func() (err error) {
			replies[i], err = c.try(r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	ids := map[task.ID]int{}
	for _, r := range replies {
		ids[c.accepted(r).TaskID]++
	}
	if len(ids) != 1 {
		t.Fatalf("tasks: got %v, want one", ids)
	}
	for id := range ids {
		records, _, err := c.store.History(t.Context(), id.Thread(), "", 10)
		if err != nil || len(records) != 1 || records[0].TaskID != id {
			t.Errorf("records: got %+v, %v, want the one of %s", records, err, id)
		}
	}
	for _, m := range c.queue.messages() {
		if got := *m.MessageAttributes["task_id"].StringValue; ids[task.ID(got)] == 0 {
			t.Errorf("sent: got %s, want only the one task", got)
		}
	}
}

func TestRetryAfterQueueFailureDelivers(t *testing.T) {
	t.Parallel()
	for _, path := range []struct{ target, body string }{
		{"/agent/query", question}, {"/agent/tickets/TK-1", `{"status":"closed"}`},
	} {
		c := start(t)
		c.queue.fail(func(context.Context, *sqs.SendMessageInput) error { return errors.New("connection refused") })
		c.problem(c.post(path.target, path.body, "Idempotency-Key", "k"), 503, httpapi.CodeQueueUnavailable)
		c.problem(c.post(path.target, path.body, "Idempotency-Key", "k"), 503, httpapi.CodeQueueUnavailable)
		c.queue.fail(nil)
		a := c.accepted(c.post(path.target, path.body, "Idempotency-Key", "k"))
		record, err := c.store.Record(t.Context(), a.TaskID)
		if err != nil || record.Status != checkpoint.Queued || record.Error != nil {
			t.Errorf("record: got %+v, %v, want it queued", record, err)
		}
		records, _, err := c.store.History(t.Context(), a.ThreadID, "", 10)
		if err != nil || len(records) != 1 {
			t.Errorf("records: got %d, %v, want 1", len(records), err)
		}
		if sent := c.queue.messages(); len(sent) != 1 || *sent[0].MessageAttributes["task_id"].StringValue != string(a.TaskID) {
			t.Errorf("messages: got %v, want the one of %s", sent, a.TaskID)
		}
	}
}

// A task of which no message was left is sent again under its key, unless a worker has had it.
func TestRetryOfATaskThatWasGivenUpDelivers(t *testing.T) {
	t.Parallel()
	for name, claimed := range map[string]bool{"never at a worker": false, "with an attempt": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, func(cfg *httpapi.Config) { cfg.Store = forgetful{cfg.Store} })
			a := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k"))
			want := 2
			if claimed {
				c.claim(a.TaskID, a.MessageID, time.Now().Add(-time.Second))
				want = 1
			}
			record, err := c.store.Record(t.Context(), a.TaskID)
			if err != nil {
				t.Fatal(err)
			}
			if given, err := c.store.GiveUp(t.Context(), record, task.Failure{Code: task.CodeMessageLost}); err != nil || !given {
				t.Fatalf("given up: %v, %v, want true", given, err)
			}
			if again := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k")); again.TaskID != a.TaskID {
				t.Errorf("task: got %s, want %s", again.TaskID, a.TaskID)
			}
			if sent := c.queue.messages(); len(sent) != want {
				t.Errorf("messages: got %d, want %d", len(sent), want)
			}
			record, err = c.store.Record(t.Context(), a.TaskID)
			if wantStatus := map[bool]checkpoint.Status{false: checkpoint.Queued, true: checkpoint.Failed}[claimed]; err != nil || record.Status != wantStatus {
				t.Errorf("record: %s, %v, want %s", record.Status, err, wantStatus)
			}
		})
	}
}

// forgetful loses the note that a message is on the queue, as a process does that dies before it.
type forgetful struct{ httpapi.Store }

func (forgetful) KeySent(context.Context, string, string) error { return errors.New("cut off") }

func TestRetryOfATaskThatAWorkerHasIsNotSentAgain(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = forgetful{cfg.Store} })
	a := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k"))
	c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute))
	if again := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k")); again != a {
		t.Errorf("got %+v, want %+v", again, a)
	}
	if sent := c.queue.messages(); len(sent) != 1 {
		t.Errorf("messages: got %d, want 1", len(sent))
	}
}

func TestRetryOfATaskWithoutWordOfItsMessageIsSentAgain(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = forgetful{cfg.Store} })
	a := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k"))
	again := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k"))
	if again.TaskID != a.TaskID {
		t.Errorf("task: got %s, want %s", again.TaskID, a.TaskID)
	}
	if sent := c.queue.messages(); len(sent) != 2 {
		t.Errorf("messages: got %d, want 2: better one too many than none", len(sent))
	}
}

// broken is a table that cannot be reached for one kind of write.
type broken struct {
	httpapi.Store
	create, reserve bool
}

var errTable = errors.New("dial tcp: connection refused")

func (b *broken) Create(ctx context.Context, m task.Message, at time.Time) (checkpoint.Record, bool, error) {
	if b.create {
		return checkpoint.Record{}, false, errTable
	}
	return b.Store.Create(ctx, m, at)
}

func (b *broken) ReserveKey(ctx context.Context, k checkpoint.Key) (checkpoint.Key, bool, error) {
	if b.reserve {
		return checkpoint.Key{}, false, errTable
	}
	return b.Store.ReserveKey(ctx, k)
}

func TestTableDownIs503AndNothingIsSent(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]*broken{"record": {create: true}, "key": {reserve: true}} {
		c := start(t, func(cfg *httpapi.Config) { cut.Store = cfg.Store; cfg.Store = cut })
		r := c.post("/agent/query", question, "Idempotency-Key", "k")
		c.problem(r, 503, httpapi.CodeUnavailable)
		if r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: Retry-After: got none", name)
		}
		if sent := c.queue.messages(); len(sent) != 0 {
			t.Errorf("%s: messages: got %d, want none without a record", name, len(sent))
		}
		if log := c.logs.String(); !strings.Contains(log, errTable.Error()) || !strings.Contains(log, `"level":"ERROR"`) {
			t.Errorf("%s: log: got %s, want the cause", name, log)
		}
		*cut = broken{Store: cut.Store}
		a := c.accepted(c.post("/agent/query", question, "Idempotency-Key", "k"))
		if sent := c.queue.messages(); len(sent) != 1 || *sent[0].MessageAttributes["task_id"].StringValue != string(a.TaskID) {
			t.Errorf("%s: messages: got %v, want the one of the retry", name, sent)
		}
	}
}

func TestMalformedKeysAreRefused(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, headers := range map[string][]string{
		"empty":     {"Idempotency-Key", ""},
		"blank":     {"Idempotency-Key", "a b"},
		"not ASCII": {"Idempotency-Key", "schlüssel"},
		"too long":  {"Idempotency-Key", strings.Repeat("k", 256)},
		"two":       {"Idempotency-Key", "a", "Idempotency-Key", "b"},
	} {
		p := c.problem(c.post("/agent/query", question, headers...), 422, httpapi.CodeInvalidField)
		if got := p.fields(); len(got) != 1 || got[0] != "Idempotency-Key" {
			t.Errorf("%s: got %v, want Idempotency-Key", name, got)
		}
	}
	c.accepted(c.post("/agent/query", question, "Idempotency-Key", strings.Repeat("~", 255)))
}
