package emulator_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"agentworker/internal/emulator"
	"agentworker/internal/emulator/lambda"
)

// One trace leads from the request through the queue into the worker: it stands in the task's record and in every line that the
// functions log about it.
func TestATraceFollowsTheTask(t *testing.T) {
	t.Parallel()
	const root = "1-5759e988-bd862e3fe1be46a994272793"
	var mu sync.Mutex
	logged := map[string][]string{} // by function: the lines about the task
	r := start(t, func(c *emulator.Config) {
		c.Output = func(l lambda.Line) {
			if l.Stream == lambda.Stdout && strings.Contains(l.Text, "th-traced.") {
				mu.Lock()
				defer mu.Unlock()
				logged[l.Function] = append(logged[l.Function], l.Text)
			}
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.APIURL()+"/agent/query?thread_id=th-traced&question=Why", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amzn-Trace-Id", "Root="+root+";Sampled=1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	v := r.ends(t, strings.TrimPrefix(res.Header.Get("Location"), "/agent/tasks/"))
	if v.TraceID != root {
		t.Errorf("the task belongs to trace %q, want %q", v.TraceID, root)
	}
	r.eventually(t, "the worker's line about its success", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(logged["worker"], "\n"), "task succeeded")
	})
	mu.Lock()
	defer mu.Unlock()
	for _, function := range []string{"submit", "worker"} {
		if len(logged[function]) == 0 {
			t.Errorf("%s logged nothing about the task", function)
		}
		for _, line := range logged[function] {
			// Whoever asks for the task's status comes with a trace of his own.
			if !strings.Contains(line, `"trace_id":"`+root+`"`) && !strings.Contains(line, "GET /agent/tasks/") {
				t.Errorf("%s logged without the trace: %s", function, line)
			}
		}
	}
}
