package lambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentworker/internal/emulator/lambda"
)

var binary string

// asParent makes the test binary a program that runs a function which sleeps, and that can be killed.
const asParent, sleepEvent = "LAMBDA_TEST_PARENT_OF", "LAMBDA_TEST_EVENT"

func TestMain(m *testing.M) {
	if path, ok := os.LookupEnv(asParent); ok {
		f := lambda.New(lambda.Config{Name: "worker", Binary: path, Timeout: time.Minute})
		_, err := f.Invoke(context.Background(), []byte(os.Getenv(sleepEvent)))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "lambda-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "bootstrap")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", binary, "./testdata/function")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the test function:", err)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m,
		// net/http lingers half a second over a connection whose request was too large to be read.
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"),
		goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(dir)
			os.Exit(code)
		}))
}

// recorder keeps the lines of a function.
type recorder struct {
	mu    sync.Mutex
	lines []lambda.Line
}

func (r *recorder) add(line lambda.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *recorder) all() []lambda.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]lambda.Line(nil), r.lines...)
}

func (r *recorder) text() string {
	var text strings.Builder
	for _, line := range r.all() {
		fmt.Fprintf(&text, "%s %s %s\n", line.Stream, line.RequestID, line.Text)
	}
	return text.String()
}

// start makes a function of the test binary that ends with the test, and leaves no process.
func start(t *testing.T, config lambda.Config) (*lambda.Function, *recorder) {
	t.Helper()
	lines := &recorder{}
	if config.Name == "" {
		config.Name = "worker"
	}
	if config.Binary == "" {
		config.Binary = binary
	}
	if config.Timeout == 0 {
		config.Timeout = 20 * time.Second
	}
	config.Output = lines.add
	f := lambda.New(config)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		pids := map[int]bool{}
		for _, line := range lines.all() {
			pids[line.ProcessID] = true
		}
		delete(pids, 0)
		for pid := range pids {
			if running(pid) {
				t.Errorf("process %d still runs after Close", pid)
			}
		}
	})
	return f, lines
}

func running(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// gone waits until a process that is not ours to reap has left the process table, or is a zombie of someone else's.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool {
		if !running(pid) {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit, tick := time.NewTimer(time.Minute), time.NewTicker(2*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited a minute in vain until %s", what)
		}
	}
}

type event map[string]any

func payload(t *testing.T, e event) []byte {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func invoke(t *testing.T, f *lambda.Function, e event) lambda.Result {
	t.Helper()
	result, err := f.Invoke(t.Context(), payload(t, e))
	if err != nil {
		t.Fatalf("Invoke(%v): %v", e, err)
	}
	return result
}

type about struct {
	PID        int               `json:"pid"`
	RequestID  string            `json:"request_id"`
	ARN        string            `json:"arn"`
	Trace      string            `json:"trace"`
	DeadlineMS int64             `json:"deadline_ms"`
	Env        map[string]string `json:"env"`
	Dir        string            `json:"dir"`
}

func tell(t *testing.T, f *lambda.Function) about {
	t.Helper()
	result := invoke(t, f, event{"do": "about"})
	var a about
	if err := json.Unmarshal(result.Payload, &a); err != nil {
		t.Fatalf("answer %s: %v", result.Payload, err)
	}
	if a.RequestID != result.RequestID {
		t.Errorf("request id in the function: got %q, want the result's %q", a.RequestID, result.RequestID)
	}
	return a
}

// started waits for the file that a function makes to say that it runs, and returns its process id.
func started(t *testing.T, path string) int {
	t.Helper()
	var pid int
	eventually(t, "the function runs", func() bool {
		data, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(data), &pid)
		return err == nil
	})
	return pid
}
