package lambda_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworker/internal/emulator/lambda"
)

// A process can be hit from outside while it works: killed it is a crash, frozen a timeout. The id is the one that
// its SDK sends along.
func TestSignal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		signal  syscall.Signal
		timeout time.Duration
		want    string // in the answer
	}{
		{"killed", syscall.SIGKILL, time.Minute, "signal: killed"},
		{"frozen", syscall.SIGSTOP, 3 * time.Second, "Task timed out after 3.00 seconds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, _ := start(t, lambda.Config{Name: "worker", Timeout: c.timeout})
			if f.Signal("worker-1", c.signal) {
				t.Error("Signal before there is a process: got true, want false")
			}
			began := filepath.Join(t.TempDir(), "began")
			done := make(chan lambda.Result, 1)
			go func() {
				result, err := f.Invoke(t.Context(), payload(t, event{"do": "sleep", "started": began}))
				if err != nil {
					t.Error(err)
				}
				done <- result
			}()
			started(t, began)
			if f.Signal("worker-2", c.signal) {
				t.Error("Signal to a process that is not there: got true, want false")
			}
			if !f.Signal("worker-1", c.signal) {
				t.Error("Signal to the running process: got false, want true")
			}
			if result := <-done; !strings.Contains(string(result.Payload), c.want) {
				t.Errorf("got %s, want %q in it", result.Payload, c.want)
			}
			if id := tell(t, f).Env["AWS_SDK_UA_APP_ID"]; id != "worker-2" {
				t.Errorf("id of the process that came after: got %q, want worker-2", id)
			}
		})
	}
}
