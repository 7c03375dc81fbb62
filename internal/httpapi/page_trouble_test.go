package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// testOutForAWhile has the API fail under a page that watches a task, and come back.
func testOutForAWhile(t *testing.T, chromium context.Context) {
	t.Helper()
	c := parts(t)
	var out atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if out.Load() {
			http.Error(w, `{"message":"Service Unavailable"}`, http.StatusServiceUnavailable)
			return
		}
		c.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b := open(t, chromium, server.URL+"/", func(_ string, status int64) bool { return status == 503 })
	b.do(chromedp.SendKeys(chromedp.CSS("#question"), "why?"+kb.Enter))
	b.standsAt("queued")
	out.Store(true)
	b.until(`document.querySelector("#thread-fault").textContent.includes("Trying again")`)
	out.Store(false)
	b.until(`document.querySelector("#thread-fault").hidden`)
}

// testLostAnswers submits a question and a change of a ticket whose first answers are lost, and presses again.
func testLostAnswers(t *testing.T, chromium context.Context) {
	t.Helper()
	c := parts(t)
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			mu.Lock()
			seen[r.URL.Path]++
			first := seen[r.URL.Path] == 1
			mu.Unlock()
			if first {
				c.handler.ServeHTTP(httptest.NewRecorder(), r)
				http.Error(w, `{"message":"Service Unavailable"}`, http.StatusServiceUnavailable)
				return
			}
		}
		c.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b := open(t, chromium, server.URL+"/", func(_ string, status int64) bool { return status == 503 || status == 404 })
	again := func(place string) string {
		return fmt.Sprintf(`document.querySelector(%q).textContent.includes("the same task")`, place)
	}

	b.do(chromedp.SendKeys(chromedp.CSS("#question"), "why?"), chromedp.Click(chromedp.CSS("#ask-send")))
	b.until(again("#ask-fault"))
	b.do(chromedp.Click(chromedp.CSS("#ask-send")))
	b.until(`document.querySelector("#ask-fault").hidden`)

	b.do(chromedp.SendKeys(chromedp.CSS("#ticket-id"), "TK-1"+kb.Enter))
	b.until(`!document.querySelector("#ticket-move").hidden`)
	b.do(chromedp.Click(chromedp.CSS("#ticket-send")))
	b.until(again("#ticket-fault"))
	b.do(chromedp.Click(chromedp.CSS("#ticket-send")))
	b.until(`document.querySelector("#ticket-fault").hidden`)
	if got := len(c.queue.messages()); got != 2 {
		t.Errorf("%d messages were sent, want one for the question and one for the ticket", got)
	}
}

// testAddress goes to addresses of tasks that are not in the list.
func testAddress(t *testing.T, chromium context.Context) {
	t.Helper()
	c := start(t)
	one, two := c.run("th-1", `"one"`), c.run("th-1", `"two"`)
	gone := task.NewID("th-1", time.Now())
	b := open(t, chromium, c.url+"/#"+string(one.TaskID), func(url string, status int64) bool {
		return status == 404 && strings.Contains(url, string(gone))
	})
	b.until(`document.querySelector("#answer .answer-text")?.textContent === "one"`)
	b.choose("filter", "failed")
	b.until(`!document.querySelector("#rows-none").hidden`)
	goTo := func(id task.ID) { value[string](b, fmt.Sprintf(`location.hash = %q`, "#"+id)) }
	goTo(two.TaskID)
	b.until(`document.querySelector("#answer .answer-text").textContent === "two"`)
	goTo(gone)
	b.until(`document.querySelector("#thread-fault").textContent === "There is no task of this id, or it has expired."`)
	b.until(`document.querySelector("#task").hidden`)
}

// testLongWords shows what has no blank to break a line at, in both directions.
func testLongWords(t *testing.T, chromium context.Context) {
	t.Helper()
	c := start(t)
	for _, letter := range []string{"x", "א"} {
		word := strings.Repeat(letter, 900)
		a := c.run("th-1", `{"question":"`+word+`","answer":"`+word+`","citations":[{"title":"`+word+`"}]}`)
		b := open(t, chromium, c.url+"/#"+string(a.TaskID), nil)
		b.until(`document.querySelector("#answer .citations")`)
		for _, place := range []string{".asked", ".answer-text", ".citations"} {
			over := value[float64](b, `(() => { const range = document.createRange(); range.selectNodeContents(document.querySelector("#answer `+place+`"));
				const text = range.getBoundingClientRect(), card = document.querySelector("#task").getBoundingClientRect();
				return Math.max(card.left - text.left, text.right - card.right) })()`)
			if over > 0 {
				t.Errorf("%s of %s: sticks out of its card by %v pixels", place, letter, over)
			}
		}
	}
}

// testLost does not send anybody to a dead-letter queue for a message that is in none.
func testLost(t *testing.T, chromium context.Context) {
	t.Helper()
	c := start(t)
	a := c.accepted(c.post("/agent/query", `{"question":"why?"}`))
	record := c.claim(a.TaskID, a.MessageID, time.Now().Add(time.Minute))
	if err := c.store.End(t.Context(), record, checkpoint.End{
		Status: checkpoint.Failed, Failure: task.Failure{Code: task.CodeMessageLost, Message: "no message is left of the task"},
	}); err != nil {
		t.Fatal(err)
	}
	b := open(t, chromium, c.url+"/#"+string(a.TaskID), nil)
	b.standsAt("failed")
	if got := b.text("#failure"); !strings.Contains(got, "Submit it again") || strings.Contains(got, "dead-letter queue") {
		t.Errorf("failure: got %q, want that it is submitted again, and no dead-letter queue", got)
	}
}

// testNoSuchTicket offers no move of what can be no ticket.
func testNoSuchTicket(t *testing.T, chromium context.Context) {
	t.Helper()
	c := start(t)
	b := open(t, chromium, c.url+"/", func(_ string, status int64) bool { return status == 404 })
	b.do(chromedp.SendKeys(chromedp.CSS("#ticket-id"), "TK 1"+kb.Enter))
	b.until(`!document.querySelector("#ticket-fault").hidden`)
	if got := b.text("#ticket-fault"); !strings.HasPrefix(got, "ticket_id must") || strings.Contains(got, "Moving") {
		t.Errorf("fault: got %q, want what an id must be, and no promise", got)
	}
	if !value[bool](b, `document.querySelector("#ticket-move").hidden`) {
		t.Error("the page offers to move it")
	}
}
