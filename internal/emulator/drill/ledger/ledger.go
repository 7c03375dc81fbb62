// Package ledger is the outside world of a drill: the steps of its tasks call it, it counts each call that was really
// made, and it is where a step is interrupted in the middle.
package ledger

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"agentworker/internal/emulator/chaos"
)

// Call is one call that took effect.
type Call struct {
	N       int64  // 1, 2, 3 …; the call's own answer, so that no two calls answer the same
	Key     string // effect key
	At      time.Time
	Process string     // that made it
	Fault   chaos.Kind // that struck before its answer; "": none
}

// Ledger is an http.Handler, safe for concurrent use. Its zero value works and injects nothing.
type Ledger struct {
	// Chaos strikes calls: [chaos.Cut] before they take effect; [chaos.Lost], [chaos.KillMidStep] and [chaos.Late], which
	// is an answer that comes when the function's time is long over, after that.
	Chaos *chaos.Injector
	// LateBy is how long such an answer takes.
	LateBy time.Duration

	mu    sync.Mutex
	calls []Call
}

// Paths of the ledger.
const (
	callPath = "/call"
	lookPath = "/look"
)

// ServeHTTP takes a call (POST /call?key=…), or a look (GET /look?key=…), which has no effect and may fail.
func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	process := strings.TrimPrefix(r.UserAgent(), "app/")
	hit := chaos.Injection{Process: process, What: "step at " + key}
	if l.Chaos.Strike(chaos.Cut, "ledger "+key, hit) {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == lookPath {
		return
	}
	n := l.record(Call{Key: key, At: time.Now(), Process: process})
	for _, kind := range []chaos.Kind{chaos.KillMidStep, chaos.Lost, chaos.Late} {
		if !l.Chaos.Strike(kind, "ledger "+key, hit) {
			continue
		}
		l.fault(n, kind)
		if kind == chaos.Late {
			l.wait()
			break
		}
		panic(http.ErrAbortHandler)
	}
	_ = json.MarshalWrite(w, n) // the client is gone
}

// wait takes its time whether or not the caller is still there.
func (l *Ledger) wait() {
	timer := time.NewTimer(l.LateBy)
	defer timer.Stop()
	<-timer.C
}

func (l *Ledger) record(c Call) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.N = int64(len(l.calls) + 1)
	l.calls = append(l.calls, c)
	return c.N
}

func (l *Ledger) fault(n int64, kind chaos.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[n-1].Fault = kind
}

// Calls are the calls so far, in their order.
func (l *Ledger) Calls() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Call(nil), l.calls...)
}

// Count is how many calls there are.
func (l *Ledger) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}
