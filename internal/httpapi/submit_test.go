package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/checkpoint"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

func TestAcceptedTaskIsRecordedAndSent(t *testing.T) {
	t.Parallel()
	c := start(t)
	r := c.post("/agent/query", `{"thread_id":"th-1","question":"why?","priority":7,"delay_seconds":900,"ordered":false}`)
	a := c.accepted(r)
	if a.ThreadID != "th-1" || a.Status != "queued" || !strings.HasPrefix(string(a.TaskID), "th-1.") || a.MessageID == "" {
		t.Errorf("answer: got %s", r.body)
	}
	for name, want := range map[string]string{
		"Location": "/agent/tasks/" + string(a.TaskID), "Retry-After": "1", "Content-Type": "application/json",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	record, err := c.store.Record(t.Context(), a.TaskID)
	if err != nil || record.Status != checkpoint.Queued || record.Task != "rag_query" {
		t.Errorf("record: got %+v, %v, want a queued rag_query", record, err)
	}
	sent := c.queue.messages()
	if len(sent) != 1 {
		t.Fatalf("messages: got %d, want 1", len(sent))
	}
	want := `{"task":"rag_query","task_id":"` + string(a.TaskID) + `","thread_id":"th-1","question":"why?"}`
	if got := *sent[0].MessageBody; got != want {
		t.Errorf("body: got %s, want %s", got, want)
	}
	attributes := map[string]string{}
	for name, v := range sent[0].MessageAttributes {
		attributes[name] = *v.DataType + " " + *v.StringValue
	}
	if diff := cmp.Diff(map[string]string{
		"task_type": "String rag_query", "thread_id": "String th-1", "task_id": "String " + string(a.TaskID), "priority": "Number 7",
	}, attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if *sent[0].QueueUrl != standardURL || *sent[0].MessageGroupId != "th-1" || sent[0].DelaySeconds != 900 || sent[0].MessageDeduplicationId != nil {
		t.Errorf("message: got %+v", sent[0])
	}
}

func TestQueryTakesParametersFromTheQueryString(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, r := range map[string]*http.Request{
		"no body, no type":    c.request("POST", "/agent/query?thread_id=th-1&question=why%3F+%E4%BD%A0", ""),
		"no body, form type":  c.request("POST", "/agent/query?thread_id=th-1&question=why%3F+%E4%BD%A0", "", "Content-Type", "application/x-www-form-urlencoded"),
		"both, the same":      c.request("POST", "/agent/query?thread_id=th-1&question=why%3F+%E4%BD%A0", `{"thread_id":"th-1","question":"why? 你"}`, "Content-Type", "application/json"),
		"some here and there": c.request("POST", "/agent/query?thread_id=th-1", `{"question":"why? 你"}`),
	} {
		a := c.accepted(c.do(r))
		want := `{"task":"rag_query","task_id":"` + string(a.TaskID) + `","thread_id":"th-1","question":"why? 你"}`
		sent := c.queue.messages()
		if got := *sent[len(sent)-1].MessageBody; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	p := c.problem(c.post("/agent/query?thread_id=th-2&question=how", `{"thread_id":"th-1","question":"why"}`), 422, httpapi.CodeInvalidField)
	if got, want := p.fields(), []string{"thread_id", "question"}; !slices.Equal(got, want) {
		t.Errorf("both, different: got %v, want %v", got, want)
	}
}

func TestTaskWithoutThreadGetsANewOne(t *testing.T) {
	t.Parallel()
	c := start(t)
	first := c.accepted(c.post("/agent/query", `{"question":"why?"}`))
	second := c.accepted(c.post("/agent/query", `{"question":"why?"}`))
	if first.ThreadID == "" || first.ThreadID == second.ThreadID || first.TaskID.Thread() != first.ThreadID {
		t.Errorf("threads: got %+v and %+v, want a new one each", first, second)
	}
}

func TestOrderedTasksGoToTheOrderedQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ path, body, group string }{
		"ticket":           {"/agent/tickets/TK-1001", `{"status":"closed"}`, "ticket-TK-1001"},
		"ticket as task":   {"/agent/tasks", `{"task":"update_ticket","ticket_id":"TK-1001","status":"closed","ordered":false}`, "ticket-TK-1001"},
		"query on request": {"/agent/query", `{"thread_id":"th-1","question":"why?","ordered":true}`, "th-1"},
		"task on request":  {"/agent/tasks", `{"task":"echo","thread_id":"th-1","ordered":true}`, "th-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			a := c.accepted(c.post(tc.path, tc.body))
			sent := c.queue.messages()
			if len(sent) != 1 {
				t.Fatalf("messages: got %d, want 1", len(sent))
			}
			got := []string{*sent[0].QueueUrl, *sent[0].MessageGroupId, aws.ToString(sent[0].MessageDeduplicationId), a.ThreadID}
			if want := []string{orderedURL, tc.group, string(a.TaskID), tc.group}; !slices.Equal(got, want) {
				t.Errorf("queue, group, deduplication, thread: got %v, want %v", got, want)
			}
		})
	}
}

func TestOtherFieldsReachTheMessageUntouched(t *testing.T) {
	t.Parallel()
	c := start(t)
	fields := `"size":12,"big":123456789012345678901234567890.10,"huge":1e400,"empty":[],"none":null,"nested":{"z":1,"a":[{}]},"text":"\u00e9\/\ud83d\ude00 é😀 \"\\","Size":"other"`
	a := c.accepted(c.post("/agent/tasks", `{"priority":3,"task":"echo",`+fields+`,"thread_id":"th-1","delay_seconds":5}`))
	want := `{"task":"echo","task_id":"` + string(a.TaskID) + `","thread_id":"th-1",` + fields + `}`
	if got := *c.queue.messages()[0].MessageBody; got != want {
		t.Errorf("body:\n got %s\nwant %s", got, want)
	}
}

func TestEveryWrongFieldIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, tc := range map[string]struct {
		target, body string
		want         []string
	}{
		"query, all":        {"/agent/query", `{"thread_id":"a b","question":7,"ordered":1,"priority":11,"delay_seconds":901}`, []string{"delay_seconds", "ordered", "priority", "question", "thread_id"}},
		"query, typo":       {"/agent/query", `{"thread_id":"a","Question":"x","questoin":"y"}`, []string{"Question", "questoin", "question"}},
		"query, task id":    {"/agent/query", `{"task_id":"x","question":"y"}`, []string{"task_id"}},
		"query, nulls":      {"/agent/query", `{"thread_id":null,"question":null,"ordered":null,"priority":null,"delay_seconds":null}`, []string{"delay_seconds", "ordered", "priority", "question", "thread_id"}},
		"fractions":         {"/agent/query", `{"question":"x","priority":1.5,"delay_seconds":1e2}`, []string{"delay_seconds", "priority"}},
		"low":               {"/agent/query", `{"question":"x","priority":0,"delay_seconds":-1}`, []string{"delay_seconds", "priority"}},
		"ordered and delay": {"/agent/query", `{"question":"x","ordered":true,"delay_seconds":1}`, []string{"delay_seconds"}},
		"delayed ticket":    {"/agent/tasks", `{"task":"update_ticket","ticket_id":"T1","status":"open","delay_seconds":1}`, []string{"delay_seconds"}},
		"reserved thread":   {"/agent/query", `{"thread_id":"unparsed","question":"x"}`, []string{"thread_id"}},
		"ticket":            {"/agent/tickets/a%20b", `{"state":"closed"}`, []string{"state", "status", "ticket_id"}},
		"ticket, in body":   {"/agent/tickets/T1", `{"ticket_id":"T1","status":"closed"}`, []string{"ticket_id"}},
		"ticket, both":      {"/agent/tasks", `{"task":"update_ticket","ticket_id":7,"status":"gone"}`, []string{"status", "ticket_id"}},
		"ticket's thread":   {"/agent/tasks", `{"task":"update_ticket","ticket_id":"T1","thread_id":"th","status":"open"}`, []string{"thread_id"}},
		"task, none":        {"/agent/tasks", `{"priority":99}`, []string{"priority", "task"}},
		"task, unknown":     {"/agent/tasks", `{"task":"nope","priority":99}`, []string{"priority", "task"}},
		"task, not text":    {"/agent/tasks", `{"task":["echo"]}`, []string{"task"}},
		"task, given id":    {"/agent/tasks", `{"task":"echo","task_id":"th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB","size":"x"}`, []string{"size", "task_id"}},
		"query string":      {"/agent/query?ordered=true&question=a&question=b", ``, []string{"ordered", "question"}},
		"task query string": {"/agent/tasks?thread_id=x", `{"task":"echo"}`, []string{"thread_id"}},
	} {
		p := c.problem(c.post(tc.target, tc.body), 422, httpapi.CodeInvalidField)
		got := p.fields()
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	if sent := c.queue.messages(); len(sent) != 0 {
		t.Errorf("messages: got %d, want none of what was refused", len(sent))
	}
}

func TestQueueDownIs503AndTheRecordSaysSo(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.queue.fail(func(context.Context, *sqs.SendMessageInput) error { return errors.New("connection refused") })
	r := c.post("/agent/query", `{"thread_id":"th-1","question":"why?"}`)
	c.problem(r, 503, httpapi.CodeQueueUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("Retry-After: got none")
	}
	records, _, err := c.store.History(t.Context(), "th-1", "", 10)
	if err != nil || len(records) != 1 {
		t.Fatalf("history: got %v, %v, want one record", records, err)
	}
	if got := records[0]; got.Status != checkpoint.Failed || got.Error == nil || got.Error.Code != task.CodeSubmitFailed {
		t.Errorf("record: got %+v, want failed with %s", got, task.CodeSubmitFailed)
	}
}

func TestHangingQueueIs503InTime(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Timeout = 2 * time.Second })
	var left time.Duration
	c.queue.fail(func(ctx context.Context, _ *sqs.SendMessageInput) error {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		<-ctx.Done()
		return ctx.Err()
	})
	c.problem(c.post("/agent/query", `{"thread_id":"th-1","question":"why?"}`), 503, httpapi.CodeQueueUnavailable)
	if left > 1500*time.Millisecond {
		t.Errorf("time for sending: got %s of 2s, want some left for the note and the answer", left)
	}
	records, _, err := c.store.History(t.Context(), "th-1", "", 10)
	if err != nil || len(records) != 1 || records[0].Status != checkpoint.Failed {
		t.Errorf("history: got %+v, %v, want one failed record", records, err)
	}
}

func TestRecordSaysSoAlsoWhenTheClientHangsUp(t *testing.T) {
	t.Parallel()
	c := parts(t)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	c.queue.fail(func(ctx context.Context, _ *sqs.SendMessageInput) error {
		hangUp()
		<-ctx.Done()
		return ctx.Err()
	})
	if _, err := httpapi.Adapter(c.handler)(ctx, event(t, "query-string.json")); err != nil {
		t.Fatal(err)
	}
	records, _, err := c.store.History(t.Context(), "th-1", "", 10)
	if err != nil || len(records) != 1 || records[0].Status != checkpoint.Failed {
		t.Errorf("history: got %+v, %v, want one failed record", records, err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	c := start(t)
	fit := func(n int) string { return `{"thread_id":"th-1","question":"` + strings.Repeat("x", n) + `"}` }
	// What the message has besides the question: its other members and its attributes.
	a := c.accepted(c.post("/agent/query", fit(1)))
	m := c.queue.messages()[0]
	rest := len(*m.MessageBody) - 1
	for name, v := range m.MessageAttributes {
		rest += len(name) + len(*v.DataType) + len(*v.StringValue)
	}
	c.accepted(c.post("/agent/query", fit(1<<20-rest)))
	c.problem(c.post("/agent/query", fit(1<<20-rest+1)), 413, httpapi.CodeTooLarge)
	c.problem(c.post("/agent/query", fit(1<<20)), 413, httpapi.CodeTooLarge)
	c.problem(c.post("/agent/query", strings.Repeat("[", 10<<20)), 413, httpapi.CodeTooLarge)
	records, _, err := c.store.History(t.Context(), a.ThreadID, "", 10)
	if err != nil || len(records) != 2 {
		t.Errorf("records: got %d, %v, want the two that fit", len(records), err)
	}

	small := start(t, func(cfg *httpapi.Config) { cfg.MaxBodyBytes = 64 })
	small.accepted(small.post("/agent/query", `{"question":"why?"}`))
	small.problem(small.post("/agent/query", fit(64)), 413, httpapi.CodeTooLarge)
}

// A method is a word of the client's too.
func TestTheLogDoesNotRepeatAMethodThatDoesNotExist(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.do(c.request("BREW-SECRET", "/healthz", ""))
	if text := c.logs.String(); strings.Contains(text, "SECRET") || !strings.Contains(text, `"method":"other"`) {
		t.Errorf("log is %s, want the method other", text)
	}
}

func TestLogsHaveIDsAndNoText(t *testing.T) {
	t.Parallel()
	c := start(t)
	a := c.accepted(c.post("/agent/query?thread_id=th-1&question=secret-a", ""))
	c.accepted(c.post("/agent/query", `{"thread_id":"th-1","question":"secret-b"}`))
	c.post("/agent/query", `{"thread_id":"th-1","question":["secret-c"]}`)
	c.post("/agent/query", `{"secret-d":`)
	c.get("/secret-e?secret-f")
	text := c.logs.String()
	if strings.Contains(text, "secret") {
		t.Errorf("log holds text: %s", text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 5 {
		t.Fatalf("log: got %d lines, want 5:\n%s", len(lines), text)
	}
	for _, want := range []string{
		`"method":"POST"`, `"route":"POST /agent/query"`, `"status":202`, `"duration_ms":`,
		`"task_id":"` + string(a.TaskID) + `"`, `"thread_id":"th-1"`, `"message_id":"` + a.MessageID + `"`,
	} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("log: got %s, want %s in it", lines[0], want)
		}
	}
}
