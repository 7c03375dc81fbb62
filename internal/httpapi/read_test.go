package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/checkpoint"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

type taskView struct {
	TaskID      task.ID        `json:"task_id"`
	Task        string         `json:"task"`
	ThreadID    string         `json:"thread_id"`
	Status      string         `json:"status"`
	Attempts    jsontext.Value `json:"attempts"`
	Step        string         `json:"step"`
	Error       *task.Failure  `json:"error"`
	Tokens      task.Tokens    `json:"tokens"`
	TraceID     string         `json:"trace_id"`
	Result      jsontext.Value `json:"result"`
	SubmittedAt *time.Time     `json:"submitted_at"`
	UpdatedAt   *time.Time     `json:"updated_at"`
	NextRetryAt *time.Time     `json:"next_retry_at"`
	Steps       []stepView     `json:"steps"` // of a history only
}

type stepView struct {
	Step string `json:"step"`
	N    uint64 `json:"n"`
}

type attemptView struct {
	Attempt   int           `json:"attempt"`
	StartedAt *time.Time    `json:"started_at"`
	EndedAt   *time.Time    `json:"ended_at"`
	Step      string        `json:"step"`
	Error     *task.Failure `json:"error"`
}

func (c *chain) task(id task.ID) taskView {
	c.Helper()
	r := c.get("/agent/tasks/" + string(id))
	if r.StatusCode != http.StatusOK {
		c.Fatalf("task %s: got %d %s, want 200", id, r.StatusCode, r.body)
	}
	var v taskView
	decode(c.T, r.body, &v)
	return v
}

// odd is JSON that does not survive a decoder that means well.
const odd = `{ "z":1, "a": 12345678901234567890.10, "big":1e400, "none":null, "empty":[ ],"t":"\u00e9\/é\ud83d\ude00<&>\u2028\uffff", "n":9007199254740993 }`

func TestTaskFollowsItsLife(t *testing.T) {
	t.Parallel()
	c := start(t)
	a := c.accepted(c.post("/agent/query", question))
	v := c.task(a.TaskID)
	if v.Status != "queued" || string(v.Attempts) != "0" || v.Error != nil || string(v.Result) != "null" || v.NextRetryAt != nil ||
		v.SubmittedAt == nil || v.UpdatedAt == nil || v.ThreadID != "th-1" || v.Task != "rag_query" || v.TaskID != a.TaskID {
		t.Errorf("queued: got %+v", v)
	}
	record := c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute))
	if v := c.task(a.TaskID); v.Status != "running" || string(v.Attempts) != "1" {
		t.Errorf("running: got %+v", v)
	}
	next := time.Now().Add(2 * time.Second)
	if err := c.store.End(t.Context(), record, checkpoint.End{
		Status: checkpoint.Retrying, Failure: task.Failure{Code: "MODEL_BUSY", Message: "try later"}, Step: "generate", NextRetryAt: next,
	}); err != nil {
		t.Fatal(err)
	}
	v = c.task(a.TaskID)
	if v.Status != "retrying" || v.Error == nil || v.Error.Code != "MODEL_BUSY" || v.Step != "generate" || v.NextRetryAt == nil ||
		v.NextRetryAt.UnixMilli() != next.UnixMilli() {
		t.Errorf("retrying: got %+v", v)
	}
	record = c.claim(a.TaskID, a.MessageID, time.Now().Add(2*time.Minute))
	c.commit(record, "generate", odd, true, nil)
	v = c.task(a.TaskID)
	if v.Status != "succeeded" || string(v.Attempts) != "2" || v.Error != nil || v.NextRetryAt != nil || v.Step != "generate" {
		t.Errorf("succeeded: got %+v", v)
	}
	if got := string(v.Result); got != odd {
		t.Errorf("result: got %s, want %s", got, odd)
	}
}

func TestResultIsTheBareDataByteForByte(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.problem(c.get("/agent/result/th-1"), 404, httpapi.CodeNotFound)
	c.accepted(c.post("/agent/query", question))
	waiting := c.get("/agent/result/th-1")
	p := c.problem(waiting, 404, httpapi.CodeNotFound)
	if !strings.Contains(p.Detail, "no result yet") || waiting.Header.Get("Retry-After") == "" {
		t.Errorf("not ready: got %+v, want it told from an unknown thread", p)
	}
	for _, data := range []string{`"first"`, odd} {
		c.run("th-1", data)
		r := c.get("/agent/result/th-1")
		if r.StatusCode != 200 || string(r.body) != data || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("result: got %d %s, want %s", r.StatusCode, r.body, data)
		}
	}
	location := c.get("/agent/result/th-1").Header.Get("Content-Location")
	if want := "/agent/threads/th-1/checkpoints/4"; location != want {
		t.Errorf("Content-Location: got %s, want %s", location, want)
	}
}

func TestCheckpointShowsTheStateAsItWas(t *testing.T) {
	t.Parallel()
	c := start(t)
	var ids []task.ID
	for i := range 12 {
		ids = append(ids, c.run("th-1", fmt.Sprintf(`{ "turn":%d}`, i+1)).TaskID)
	}
	type turn struct {
		N      uint64         `json:"n"`
		TaskID task.ID        `json:"task_id"`
		Task   string         `json:"task"`
		Data   jsontext.Value `json:"data"`
	}
	type view struct {
		ThreadID   string         `json:"thread_id"`
		N          uint64         `json:"n"`
		TaskID     task.ID        `json:"task_id"`
		Task       string         `json:"task"`
		Step       string         `json:"step"`
		Attempt    int            `json:"attempt"`
		DurationMS int64          `json:"duration_ms"`
		Tokens     task.Tokens    `json:"tokens"`
		UpdatedAt  time.Time      `json:"updated_at"`
		Data       jsontext.Value `json:"data"`
		State      struct {
			Turns []turn `json:"turns"`
		} `json:"state"`
	}
	for _, tc := range []struct {
		n           uint64
		step, data  string
		first, last int // turns, from 1
	}{
		{1, "retrieve", `["passage"]`, 1, 0},
		{2, "generate", `{ "turn":1}`, 1, 1},
		{7, "retrieve", `["passage"]`, 1, 3},
		{23, "retrieve", `["passage"]`, 2, 11},
		{24, "generate", `{ "turn":12}`, 3, 12},
	} {
		r := c.get(fmt.Sprintf("/agent/threads/th-1/checkpoints/%d", tc.n))
		var v view
		decode(t, r.body, &v)
		if r.StatusCode != 200 || v.ThreadID != "th-1" || v.N != tc.n || v.Step != tc.step || string(v.Data) != tc.data ||
			v.DurationMS != 1234 || v.Attempt != 1 || v.Task != "rag_query" || v.TaskID != ids[(tc.n-1)/2] {
			t.Errorf("checkpoint %d: got %d %s", tc.n, r.StatusCode, r.body)
		}
		want := []turn{}
		for i := tc.first; i <= tc.last; i++ {
			want = append(want, turn{uint64(2 * i), ids[i-1], "rag_query", jsontext.Value(fmt.Sprintf(`{ "turn":%d}`, i))})
		}
		if diff := cmp.Diff(want, v.State.Turns); diff != "" {
			t.Errorf("turns at checkpoint %d (-want +got):\n%s", tc.n, diff)
		}
	}
	c.problem(c.get("/agent/threads/th-1/checkpoints/25"), 404, httpapi.CodeNotFound)
}

// Steps that are no results lie between the turns, more of them than one read brings.
func TestTurnsAreFoundBehindManySteps(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.run("th-1", `"first"`)
	a := c.accepted(c.post("/agent/query", question))
	record := c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute))
	for i := range 90 {
		record = c.commit(record, fmt.Sprintf("step %d", i), `0`, false, nil).Record
	}
	r := c.get("/agent/threads/th-1/checkpoints/92")
	if want := `"data":"first"}]}}`; !strings.HasSuffix(string(r.body), want) {
		t.Errorf("got %s, want %s at its end", r.body, want)
	}
}

func TestHistoryPages(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.problem(c.get("/agent/threads/th-1/history"), 404, httpapi.CodeNotFound)
	var want []task.ID
	for range 25 {
		want = append(want, c.accepted(c.post("/agent/query", question)).TaskID)
	}
	slices.Sort(want) // of those of one millisecond, chance has decided
	type page struct {
		ThreadID string     `json:"thread_id"`
		Tasks    []taskView `json:"tasks"`
		Next     string     `json:"next_cursor"`
	}
	for _, tc := range []struct {
		query string
		pages []int
	}{{"", []int{20, 5}}, {"limit=5", []int{5, 5, 5, 5, 5}}, {"limit=12", []int{12, 12, 1}}, {"limit=100", []int{25}}} {
		var got []task.ID
		var sizes []int
		cursor := ""
		for {
			r := c.get("/agent/threads/th-1/history?" + tc.query + cursor)
			var p page
			decode(t, r.body, &p)
			for _, v := range p.Tasks {
				got = append(got, v.TaskID)
			}
			sizes = append(sizes, len(p.Tasks))
			if p.Next == "" {
				break
			}
			cursor = "&cursor=" + p.Next
		}
		if !slices.Equal(sizes, tc.pages) || !slices.Equal(got, want) {
			t.Errorf("%q: got pages %v of %v, want %v of %v", tc.query, sizes, got, tc.pages, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "limit=", "cursor=", "cursor=abc", "cursor=%21", "limit=1&limit=2", "cusror=x"} {
		c.problem(c.get("/agent/threads/th-1/history?"+query), 422, httpapi.CodeInvalidField)
	}
}

func TestHistoryShowsEveryAttempt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := start(t, func(cfg *httpapi.Config) { cfg.Now = func() time.Time { return now } })
	a := c.accepted(c.post("/agent/query", question))
	c.claim(a.TaskID, a.MessageID, time.Now().Add(-time.Minute)) // its worker died
	record := c.claim(a.TaskID, a.MessageID, time.Now().Add(-time.Second))
	if err := c.store.End(t.Context(), record, checkpoint.End{
		Status: checkpoint.Retrying, Failure: task.Failure{Code: "MODEL_BUSY", Message: "try later"}, Step: "generate", NextRetryAt: now,
	}); err != nil {
		t.Fatal(err)
	}
	c.claim(a.TaskID, a.MessageID, now.Add(time.Minute))
	attempts := func() []attemptView {
		t.Helper()
		var p struct {
			ThreadID string     `json:"thread_id"`
			Tasks    []taskView `json:"tasks"`
			Next     *string    `json:"next_cursor"`
		}
		decode(t, c.get("/agent/threads/th-1/history").body, &p)
		if len(p.Tasks) != 1 || p.Tasks[0].Status != "running" || p.Tasks[0].Result != nil {
			t.Fatalf("got %+v, want one running task without a result", p)
		}
		var views []attemptView
		decode(t, p.Tasks[0].Attempts, &views)
		return views
	}
	codes := func(views []attemptView) (codes []string) {
		for i, v := range views {
			if v.Attempt != i+1 || v.StartedAt == nil {
				t.Errorf("attempt %d: got %+v", i+1, v)
			}
			code := ""
			if v.Error != nil {
				code = v.Error.Code
			}
			codes = append(codes, code)
		}
		return codes
	}
	views := attempts()
	if got, want := codes(views), []string{task.CodeInterrupted, "MODEL_BUSY", ""}; !slices.Equal(got, want) {
		t.Errorf("errors: got %q, want %q", got, want)
	}
	if views[0].EndedAt != nil || views[1].EndedAt == nil || views[1].Step != "generate" || views[2].EndedAt != nil {
		t.Errorf("attempts: got %+v", views)
	}
	now = now.Add(2 * time.Minute)
	if got, want := codes(attempts()), []string{task.CodeInterrupted, "MODEL_BUSY", task.CodeInterrupted}; !slices.Equal(got, want) {
		t.Errorf("errors after the last one's lease: got %q, want %q", got, want)
	}
}

func TestTicket(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.problem(c.get("/agent/tickets/TK-1"), 404, httpapi.CodeNotFound)
	a := c.accepted(c.post("/agent/tickets/TK-1", `{"status":"closed"}`))
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	c.commit(c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute)), "update", `{}`, true,
		&task.Ticket{ID: "TK-1", Status: "closed", Version: 1, UpdatedAt: at})
	r := c.get("/agent/tickets/TK-1")
	want := `{"ticket_id":"TK-1","status":"closed","version":1,"updated_at":"2026-01-02T03:04:05.678Z"}`
	if got := string(r.body); r.StatusCode != 200 || got != want {
		t.Errorf("got %d %s, want %s", r.StatusCode, got, want)
	}
}

func TestLocationLeadsToTheTask(t *testing.T) {
	t.Parallel()
	c := start(t)
	r := c.post("/agent/query", `{"thread_id":"a_b.c:d@e=f+g-h","question":"why?"}`)
	a := c.accepted(r)
	got := c.get(r.Header.Get("Location"))
	var v taskView
	decode(t, got.body, &v)
	if v.TaskID != a.TaskID {
		t.Errorf("got %d %s, want task %s", got.StatusCode, got.body, a.TaskID)
	}
}

// none is a table that must not be asked.
type none struct{ httpapi.Store }

func TestHealthAsksNobody(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = none{} })
	if r := c.get("/healthz"); r.StatusCode != 200 || string(r.body) != `{"status":"ok"}` {
		t.Errorf("got %d %s", r.StatusCode, r.body)
	}
	if r := c.do(c.request("HEAD", "/healthz", "")); r.StatusCode != 200 || len(r.body) != 0 {
		t.Errorf("HEAD: got %d %q", r.StatusCode, r.body)
	}
}

func TestPanicIsA500AndLogged(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = none{} })
	c.problem(c.get("/agent/result/th-1"), 500, httpapi.CodeInternal)
	if log := c.logs.String(); !strings.Contains(log, "nil pointer") || !strings.Contains(log, "getResult") {
		t.Errorf("log: got %s, want the panic with its stack", log)
	}
}

// hung answers nothing until the request's time is over.
type hung struct{ httpapi.Store }

func (hung) Record(ctx context.Context, _ task.ID) (checkpoint.Record, error) {
	<-ctx.Done()
	return checkpoint.Record{}, ctx.Err()
}

func TestHungTableIs503(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store, cfg.Timeout = hung{}, 10*time.Millisecond })
	c.problem(c.get("/agent/tasks/"+string(task.NewID("th-1", time.Now()))), 503, httpapi.CodeUnavailable)
}
