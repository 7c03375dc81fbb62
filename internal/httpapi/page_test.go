package httpapi_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
)

// The policy allows the page's own script and style, and the page has no other.
func TestPageAndItsPolicyAgree(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = none{} })
	r := c.get("/")
	text, policy := string(r.body), r.Header.Get("Content-Security-Policy")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/html; charset=utf-8" || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %d %v", r.StatusCode, r.Header)
	}
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy: got %s, want %s in it", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy: got %s, want nothing unsafe", policy)
	}
	for _, tag := range []string{"script", "style"} {
		parts := regexp.MustCompile(`(?s)<`+tag+`[^>]*>(.*?)</`+tag+`>`).FindAllStringSubmatch(text, -1)
		if len(parts) != 1 {
			t.Fatalf("%s: got %d elements, want one", tag, len(parts))
		}
		sum := sha256.Sum256([]byte(parts[0][1]))
		if want := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("policy: got %s, want %s in it", policy, want)
		}
	}
	for name, pattern := range map[string]string{
		"handler in markup": `\son[a-z]+=`, "style in markup": `\sstyle=`, "markup from text": `innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser`,
		"foreign address": `(src|href|url\()=?["']?https?://`, "placeholder": `\{\{`,
	} {
		if found := regexp.MustCompile(pattern).FindString(text); found != "" {
			t.Errorf("%s: got %q in the page, want none", name, found)
		}
	}
	t.Logf("page: %d bytes", len(text))
	if len(text) > 64<<10 {
		t.Errorf("size: got %d bytes, want 64 KiB at most", len(text))
	}
}

func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser(t)
	t.Run("question", func(t *testing.T) {
		c := start(t)
		b := open(t, chromium, c.url+"/", nil)
		if got := value[string](b, "document.activeElement.tagName"); got != "BODY" {
			t.Errorf("focus at first: got %s, want it where a reader expects it", got)
		}
		b.shoot("empty")
		b.do(chromedp.SendKeys(chromedp.CSS("#question"), "什么是 <b>LangGraph</b>？"), chromedp.SendKeys(chromedp.CSS("#question"), kb.Enter))
		b.standsAt("queued")
		id := b.task()
		b.until(`document.querySelectorAll("#rows .row").length === 1`)

		record := c.claim(id, "m1", time.Now().Add(time.Minute))
		b.standsAt("running")
		if err := c.store.End(t.Context(), record, checkpoint.End{
			Status: checkpoint.Retrying, Step: "generate", NextRetryAt: time.Now().Add(1200 * time.Millisecond),
			Failure: task.Failure{Code: "MODEL_BUSY", Message: "the model is busy <script>alert(1)</script>"},
		}); err != nil {
			t.Fatal(err)
		}
		b.standsAt("retrying")
		b.until(`document.querySelector("#failure h3").textContent === "MODEL_BUSY" && document.querySelector("#rows svg circle.next")`)
		b.shoot("retrying")
		record = c.claim(id, "m1", time.Now().Add(time.Minute))
		record = c.commit(record, "retrieve", `["passage"]`, false, nil).Record
		answer := `<img src=x onerror="document.title='broken'"> “LangGraph” שלום 😀`
		quoted, err := jsontext.AppendQuote(nil, answer)
		if err != nil {
			t.Fatal(err)
		}
		c.commit(record, "generate", `{"question":"什么是 <b>LangGraph</b>？","answer":`+string(quoted)+
			`,"citations":[{"document":"langgraph.zh.md","passage":2,"title":"LangGraph"}],"big":12345678901234567890}`, true, nil)
		b.standsAt("succeeded")
		if got := b.text("#answer .answer-text"); got != answer {
			t.Errorf("answer: got %q, want %q", got, answer)
		}
		if got := b.text("#answer .citations"); !strings.Contains(got, "langgraph.zh.md, passage 2") {
			t.Errorf("citations: got %q", got)
		}
		b.until(`document.querySelectorAll("#task-figure table[aria-label=Attempts] tbody tr").length === 2`)
		b.until(`document.querySelectorAll("#task-figure svg .step").length === 2`)
		if got := value[string](b, `document.querySelector("#task-text").textContent`); !strings.Contains(got, "12345678901234567890") {
			t.Errorf("what the API answered: got %s, want the number as it is", got)
		}
		if bad, ok := value[int](b, `document.querySelectorAll("#rows svg .bad").length`), value[int](b, `document.querySelectorAll("#rows svg .ok").length`); bad != 1 || ok != 1 {
			t.Errorf("timeline: got %d failed and %d good attempts, want one of each", bad, ok)
		}
		if got := value[string](b, "document.title"); got != "agentworker" {
			t.Errorf("title: got %q: text was taken for markup", got)
		}
		b.until(`document.querySelector("#failure").hidden`)
		b.shoot("light")
		b.do(scheme("dark"))
		b.shoot("dark")
		b.do(size(375, 800))
		b.until(`innerWidth === 375`)
		b.fits("narrow")
		b.shoot("narrow-dark")
		b.do(scheme("light"))
		b.shoot("narrow")

		// The address leads back to what is looked at.
		b.do(chromedp.Reload())
		b.standsAt("succeeded")
	})
	t.Run("poison", func(t *testing.T) { testPoison(t, chromium) })
	t.Run("keyboard", func(t *testing.T) {
		c := start(t)
		c.run("th-1", `"one"`)
		c.run("th-1", `"two"`)
		b := open(t, chromium, c.url+"/#th-1", nil)
		b.until(`document.querySelectorAll("#rows .row").length === 2`)
		var order []string
		for range 12 {
			b.do(chromedp.KeyEvent(kb.Tab))
			order = append(order, value[string](b, "document.activeElement.id || document.activeElement.getAttribute('href') || document.activeElement.tagName"))
			if got := value[string](b, "getComputedStyle(document.activeElement).outlineStyle"); got != "solid" {
				t.Errorf("%s: outline is %s: the focus cannot be seen", order[len(order)-1], got)
			}
		}
		want := []string{
			"openapi.json", "question", "ask-thread", "ask-send", "ticket-id", "ticket-look", "thread-id", "thread-show",
			"filter", "scale", "thread-again", "rows",
		}
		if !slices.Equal(order, want) {
			t.Errorf("order of Tab: got %q, want %q", order, want)
		}
		b.do(chromedp.Focus(chromedp.CSS("#rows")), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.Enter))
		b.standsAt("succeeded")
		if got := b.text("#answer .answer-text"); got != "two" {
			t.Errorf("the last row: got the answer %q, want two", got)
		}
		b.do(chromedp.KeyEvent(kb.ArrowUp), chromedp.KeyEvent(" "))
		b.until(`document.querySelector("#answer .answer-text").textContent === "one"`)
		b.do(chromedp.Focus(chromedp.CSS("#ask-thread")), chromedp.KeyEvent(kb.Enter))
		b.until(`!document.querySelector("#ask-fault").hidden && document.activeElement.id === "question"`)
	})
	t.Run("thousand", func(t *testing.T) { testThousand(t, chromium) })
	t.Run("out for a while", func(t *testing.T) { testOutForAWhile(t, chromium) })
	t.Run("lost answers", func(t *testing.T) { testLostAnswers(t, chromium) })
	t.Run("address", func(t *testing.T) { testAddress(t, chromium) })
	t.Run("long words", func(t *testing.T) { testLongWords(t, chromium) })
	t.Run("lost", func(t *testing.T) { testLost(t, chromium) })
	t.Run("no such ticket", func(t *testing.T) { testNoSuchTicket(t, chromium) })
	t.Run("not let in", func(t *testing.T) {
		c := parts(t)
		b := open(t, chromium, stopped(t, c.handler)+"/", func(_ string, status int64) bool { return status == 403 })
		b.do(chromedp.SendKeys(chromedp.CSS("#question"), "why?"+kb.Enter))
		b.until(`!document.querySelector("#notice").hidden`)
		if got := b.text("#notice"); !strings.Contains(got, "on your own machine") {
			t.Errorf("notice: got %q", got)
		}
	})
}

// testPoison follows a message that cannot succeed into the dead-letter queue.
func testPoison(t *testing.T, chromium context.Context) {
	t.Helper()
	c := start(t)
	unknown := c.url + "/agent/tickets/TK-1"
	b := open(t, chromium, c.url+"/", func(url string, status int64) bool { return url == unknown && status == 404 })
	b.do(chromedp.SendKeys(chromedp.CSS("#ticket-id"), "TK-1"+kb.Enter))
	b.until(`!document.querySelector("#ticket-move").hidden`)
	b.do(chromedp.SetValue(chromedp.CSS("#ticket-status"), "closed"), chromedp.Click(chromedp.CSS("#ticket-send")))
	b.standsAt("queued")
	id := b.task()
	record := c.claim(id, "m1", time.Now().Add(time.Minute))
	c.commit(record, "update", `{"ticket_id":"TK-1","from":"","status":"closed","version":1,"changed":true}`, true,
		&task.Ticket{ID: "TK-1", Status: "closed", Version: 1, UpdatedAt: time.Now()})
	b.standsAt("succeeded")
	b.until(`document.querySelector("#ticket-facts").innerText.includes("closed")`)

	b.do(chromedp.SetValue(chromedp.CSS("#ticket-status"), "open"), chromedp.Click(chromedp.CSS("#ticket-send")))
	b.until(`document.querySelectorAll("#rows .row").length === 2`)
	b.standsAt("queued")
	record = c.claim(b.task(), "m2", time.Now().Add(time.Minute))
	if err := c.store.End(t.Context(), record, checkpoint.End{
		Status: checkpoint.Failed, Step: "update",
		Failure: task.Failure{Code: task.CodeIllegalChange, Message: "ticket TK-1 cannot go from closed to resolved"},
	}); err != nil {
		t.Fatal(err)
	}
	b.standsAt("dead-letter queue")
	for _, want := range []string{"ILLEGAL_TRANSITION", "ticket TK-1 cannot go from closed to resolved", "What to do:", "README", "agent-tasks-ordered-dlq-depth"} {
		if got := b.text("#failure"); !strings.Contains(got, want) {
			t.Errorf("failure: got %q, want %q in it", got, want)
		}
	}
	b.until(`document.querySelector("#rows .row:last-child .state").textContent.includes("failed")`)
	b.shoot("failed")
	b.do(scheme("dark"))
	b.shoot("failed-dark")
	b.choose("filter", "failed")
	b.until(`document.querySelectorAll("#rows .row").length === 1`)
}

// choose picks an option as a person does.
func (b *tab) choose(id, option string) {
	b.Helper()
	value[bool](b, fmt.Sprintf(`(() => { const list = document.getElementById(%q); list.value = %q;
		return list.dispatchEvent(new Event("change", { bubbles: true })) })()`, id, option))
}

// task is the one that the page shows.
func (b *tab) task() task.ID {
	b.Helper()
	id, err := task.ParseID(strings.TrimPrefix(b.text("#task-title"), "Task "))
	if err != nil {
		b.Fatal(err)
	}
	return id
}

// long is a table that has one long thread besides: to run a thousand tasks for real would take the test a minute.
type long struct {
	httpapi.Store
	records     []checkpoint.Record
	checkpoints map[uint64]checkpoint.Checkpoint
}

// newLong makes a thread of tasks some of which failed or took several attempts, over the better part of a day.
func newLong(store httpapi.Store, tasks int) *long {
	s := &long{store, nil, map[uint64]checkpoint.Checkpoint{}}
	clock := time.Now().Add(-20 * time.Hour)
	pass := func(ms int) time.Time { clock = clock.Add(time.Duration(ms) * time.Millisecond); return clock }
	busy := &task.Failure{Code: "MODEL_BUSY", Message: "try later"}
	for i := range tasks {
		r := checkpoint.Record{
			TaskID: task.NewID("th-1000", clock), Task: "rag_query", SubmittedAt: clock, Step: "generate", Status: checkpoint.Succeeded,
		}
		began := pass(50 + i%7*130)
		if i%5 == 0 {
			r.Attempts = append(r.Attempts, checkpoint.Attempt{StartedAt: began, EndedAt: pass(700), Step: "generate", Error: busy})
			began = pass(2100)
		}
		if i%35 == 0 {
			r.Status, r.Error = checkpoint.Failed, busy
		} else {
			n := uint64(len(s.checkpoints) + 1)
			took := 200 + i%13*90
			r.ResultN, r.Steps = n, []checkpoint.Step{{Name: "generate", N: n}}
			r.Attempts = append(r.Attempts, checkpoint.Attempt{StartedAt: began, EndedAt: pass(took), Step: "generate"})
			s.checkpoints[n] = checkpoint.Checkpoint{
				Thread: "th-1000", N: n, TaskID: r.TaskID, Task: r.Task, Step: "generate", Data: jsontext.Value(`"done"`), Last: true,
				Attempt: len(r.Attempts), Duration: time.Duration(took-20) * time.Millisecond, UpdatedAt: clock,
			}
		}
		r.UpdatedAt = clock
		s.records = append(s.records, r)
		pass(1 + i%11*10_000)
	}
	return s
}

func (s *long) History(_ context.Context, _, after string, limit int) ([]checkpoint.Record, string, error) {
	from, _ := slices.BinarySearchFunc(s.records, after, func(r checkpoint.Record, after string) int {
		return cmp.Or(strings.Compare(r.TaskID.ULID(), after), -1) // behind it
	})
	return s.records[from:min(len(s.records), from+limit)], "", nil
}

func (s *long) Record(_ context.Context, id task.ID) (checkpoint.Record, error) {
	for _, r := range s.records {
		if r.TaskID == id {
			return r, nil
		}
	}
	return checkpoint.Record{}, checkpoint.ErrNotFound
}

func (s *long) Checkpoint(_ context.Context, _ string, n uint64) (checkpoint.Checkpoint, error) {
	return s.checkpoints[n], nil
}

// testThousand shows a thread of 1,000 tasks.
func testThousand(t *testing.T, chromium context.Context) {
	t.Helper()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = newLong(cfg.Store, 1000) })
	began := time.Now()
	b := open(t, chromium, c.url+"/#th-1000", nil)
	b.until(`document.querySelector("#thread-sum").textContent.startsWith("1,000 tasks:")`)
	t.Logf("1,000 tasks shown after %v", time.Since(began).Round(time.Millisecond))
	if got := b.text("#thread-sum"); got != "1,000 tasks: 971 succeeded, 29 failed" {
		t.Errorf("sum: got %q", got)
	}
	if rows := value[int](b, `document.querySelectorAll("#rows .row").length`); rows > 40 {
		t.Errorf("rows in the document: got %d, want those in view", rows)
	}
	b.do(chromedp.Focus(chromedp.CSS("#rows")), chromedp.KeyEvent(kb.End))
	b.until(`document.querySelector(".row.active")?.getAttribute("aria-posinset") === "1000"`)
	b.until(`(() => { const r = document.querySelector(".row.active").getBoundingClientRect(), v = document.querySelector("#rows").getBoundingClientRect();
		return r.top >= v.top && r.bottom <= v.bottom + 1 })()`)
	if got := value[string](b, `document.querySelector("#rows").getAttribute("aria-activedescendant")`); got != "row-999" {
		t.Errorf("active row: got %q, want row-999", got)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.standsAt("succeeded")
	// A new drawing, as after a resize, leaves the reader where he was.
	if moved := value[float64](b, `(async () => { const rows = document.querySelector("#rows"), before = rows.scrollTop; dispatchEvent(new Event("resize"));
		await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); return rows.scrollTop - before })()`); moved != 0 {
		t.Errorf("a resize scrolls by %v pixels", moved)
	}
	b.shoot("thousand")
	// Ten thousand pixels at a time, to its top: no more rows than are in view are ever there.
	most := value[int](b, `(async () => { let most = 0; const rows = document.querySelector("#rows");
		for (let y = rows.scrollHeight; y >= 0; y -= 1000) { rows.scrollTop = y; await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);
			most = Math.max(most, rows.querySelectorAll(".row").length); } return most })()`)
	if most > 40 {
		t.Errorf("rows while scrolling: got %d, want those in view", most)
	}
	b.choose("filter", "failed")
	b.until(`document.querySelector("#rows .row").getAttribute("aria-setsize") === "29"`)
	b.do(scheme("dark"), size(375, 800))
	b.until(`innerWidth === 375`)
	b.fits("narrow")
	b.shoot("thousand-narrow-dark")
}
