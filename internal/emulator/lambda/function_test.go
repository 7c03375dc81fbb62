package lambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentworker/internal/emulator/lambda"
)

func TestInvokeAnswers(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	want := `{"do":"echo","n":9007199254740993,"e":1e400,"list":[],"text":"日本 \u2028"}`
	first, err := f.Invoke(t.Context(), []byte(want))
	if err != nil {
		t.Fatal(err)
	}
	if string(first.Payload) != want || first.FunctionError != "" {
		t.Errorf("got %s (%q), want %s", first.Payload, first.FunctionError, want)
	}
	if first.InitDuration <= 0 || first.Duration <= 0 {
		t.Errorf("cold start: got init %v, duration %v, want both above zero", first.InitDuration, first.Duration)
	}
	second := invoke(t, f, event{"do": "echo"})
	if second.InitDuration != 0 {
		t.Errorf("warm start: got init duration %v, want 0", second.InitDuration)
	}
	if second.RequestID == first.RequestID || second.RequestID == "" {
		t.Errorf("request ids: got %q after %q, want another", second.RequestID, first.RequestID)
	}
}

func TestFunctionSeesLambdasEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the developer's own")
	f, _ := start(t, lambda.Config{
		Name: "worker", MemoryMiB: 256, Region: "eu-central-1", AccountID: "123456789012", Timeout: 7 * time.Second,
		Env: []string{"TABLE_NAME=t", "AWS_LAMBDA_FUNCTION_NAME=forged"},
	})
	before := time.Now()
	got := tell(t, f)
	if want := "arn:aws:lambda:eu-central-1:123456789012:function:worker"; got.ARN != want || f.ARN() != want {
		t.Errorf("ARN: got %q and %q, want %q", got.ARN, f.ARN(), want)
	}
	deadline := time.UnixMilli(got.DeadlineMS)
	if low, high := before.Add(6900*time.Millisecond), time.Now().Add(7*time.Second); deadline.Before(low) || deadline.After(high) {
		t.Errorf("deadline: got %v, want between %v and %v", deadline, low, high)
	}
	if !strings.HasPrefix(got.Trace, "Root=1-") {
		t.Errorf("trace: got %q, want a tracing header", got.Trace)
	}
	for name, want := range map[string]string{
		"AWS_LAMBDA_FUNCTION_NAME": "worker", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256", "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
		"AWS_REGION": "eu-central-1", "AWS_LAMBDA_LOG_FORMAT": "JSON", "_HANDLER": "bootstrap", "TABLE_NAME": "t",
		"AWS_SECRET_ACCESS_KEY": "", "HOME": "", "LAMBDA_TASK_ROOT": filepath.Dir(binary),
	} {
		if got.Env[name] != want {
			t.Errorf("%s: got %q, want %q", name, got.Env[name], want)
		}
	}
}

func TestFunctionErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		event    event
		want     string // with ID for the request id
		exact    bool
		replaced bool // the process
	}{
		{"returned error", event{"do": "error", "text": "no such ticket"}, `{"errorMessage":"no such ticket","errorType":"errorString"}`, true, false},
		{"panic", event{"do": "panic", "text": "boom"}, `{"errorMessage":"boom","errorType":"string"`, false, true},
		{"panic in a goroutine", event{"do": "panic child", "text": "boom"}, `{"errorType":"Runtime.ExitError","errorMessage":"RequestId: ID Error: Runtime exited with error: exit status 2"}`, true, true},
		{"exit 1", event{"do": "exit", "count": 1}, `{"errorType":"Runtime.ExitError","errorMessage":"RequestId: ID Error: Runtime exited with error: exit status 1"}`, true, true},
		{"exit 0", event{"do": "exit", "count": 0}, `{"errorType":"Runtime.ExitError","errorMessage":"RequestId: ID Error: Runtime exited without providing a reason"}`, true, true},
		{"killed", event{"do": "kill"}, `{"errorType":"Runtime.ExitError","errorMessage":"RequestId: ID Error: Runtime exited with error: signal: killed"}`, true, true},
		{"answer too big", event{"do": "big", "count": lambda.MaxResponse + 1}, `{"errorType":"Function.ResponseSizeTooLarge","errorMessage":"Response payload size exceeded maximum allowed payload size (6291556 bytes)."}`, true, true},
		{"broken stream", event{"do": "broken stream"}, `{"errorMessage":"torn","errorType":"errorString"}`, true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f, lines := start(t, lambda.Config{})
			before := tell(t, f).PID
			result := invoke(t, f, test.event)
			if result.FunctionError != "Unhandled" {
				t.Errorf("FunctionError: got %q, want Unhandled", result.FunctionError)
			}
			got, want := string(result.Payload), strings.ReplaceAll(test.want, "ID", result.RequestID)
			if test.exact && got != want || !strings.HasPrefix(got, want) {
				t.Errorf("payload: got %s, want %s", got, want)
			}
			if after := tell(t, f).PID; (after != before) != test.replaced {
				t.Errorf("process: got %d after %d, want replaced=%v\n%s", after, before, test.replaced, lines.text())
			}
		})
	}
}

func TestLargestAnswerPasses(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	result := invoke(t, f, event{"do": "big", "count": lambda.MaxResponse})
	if len(result.Payload) != lambda.MaxResponse || result.FunctionError != "" {
		t.Errorf("got %d bytes, error %q, want %d bytes", len(result.Payload), result.FunctionError, lambda.MaxResponse)
	}
}

func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	largest := append([]byte(`{"do":"ignore","text":"`), bytes.Repeat([]byte("x"), lambda.MaxPayload-25)...)
	largest = append(largest, `"}`...)
	if result, err := f.Invoke(t.Context(), largest); err != nil || result.FunctionError != "" {
		t.Errorf("%d bytes: got %s, error %v, want success", len(largest), result.Payload, err)
	}
	if _, err := f.Invoke(t.Context(), append(largest, ' ')); !errors.Is(err, lambda.ErrPayloadTooLarge) {
		t.Errorf("%d bytes: got %v, want ErrPayloadTooLarge", len(largest)+1, err)
	}
}

func TestTimeoutKillsTheProcessGroup(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{Timeout: 2250 * time.Millisecond})
	before := tell(t, f).PID
	result := invoke(t, f, event{"do": "child", "text": "and sleep"})
	want := fmt.Sprintf(`{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: %s Error: Task timed out after 2.25 seconds"}`, result.RequestID)
	if string(result.Payload) != want || result.FunctionError != "Unhandled" {
		t.Errorf("got %s (%q), want %s", result.Payload, result.FunctionError, want)
	}
	if running(before) {
		t.Errorf("process %d still runs after its timeout", before)
	}
	var child int
	for _, line := range lines.all() {
		if _, err := fmt.Sscanf(line.Text, "child %d", &child); err == nil {
			break
		}
	}
	if child == 0 {
		t.Fatalf("no child in the log:\n%s", lines.text())
	}
	gone(t, child)
	log := lines.text()
	if line := result.RequestID + " Task timed out after 2.25 seconds"; !strings.Contains(log, line) {
		t.Errorf("log lacks %q:\n%s", line, log)
	}
	if !strings.Contains(log, "Status: timeout") {
		t.Errorf("log lacks the status:\n%s", log)
	}
	if after := tell(t, f).PID; after == before {
		t.Errorf("process %d serves again after its timeout", after)
	}
}

func TestExitLeavesNoGrandchild(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	child := 0
	if err := json.Unmarshal(invoke(t, f, event{"do": "child"}).Payload, &child); err != nil {
		t.Fatal(err)
	}
	if !running(child) {
		t.Fatalf("child %d does not run", child)
	}
	invoke(t, f, event{"do": "exit", "count": 1})
	gone(t, child)
}

func TestIdleProcessThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{})
	for range 5 {
		pid := tell(t, f).PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, pid)
		result := invoke(t, f, event{"do": "echo"})
		if result.FunctionError != "" {
			t.Fatalf("got %s, want success from a new process\n%s", result.Payload, lines.text())
		}
		if want := fmt.Sprintf("process %d ended while idle and is replaced: Runtime exited with error: signal: killed", pid); !strings.Contains(lines.text(), want) {
			t.Errorf("log lacks %q:\n%s", want, lines.text())
		}
		if running(pid) {
			t.Errorf("process %d has not been collected", pid)
		}
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{Concurrency: 2})
	dir := t.TempDir()
	hold := filepath.Join(dir, "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	pids := map[int]bool{}
	for i := range 2 {
		mark := filepath.Join(dir, fmt.Sprint(i))
		running.Go(func() {
			if result, err := f.Invoke(t.Context(), payload(t, event{"do": "wait", "text": hold, "started": mark})); err != nil || string(result.Payload) != `"done"` {
				t.Errorf("got %s, %v, want done", result.Payload, err)
			}
		})
		pids[started(t, mark)] = true
	}
	if len(pids) != 2 {
		t.Errorf("got %d processes for two invocations at once, want 2", len(pids))
	}
	if _, err := f.Invoke(t.Context(), nil); !errors.Is(err, lambda.ErrThrottled) {
		t.Errorf("third at once: got %v, want ErrThrottled", err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	if pid := tell(t, f).PID; !pids[pid] {
		t.Errorf("got process %d, want one of the idle %v", pid, pids)
	}
}

// A caller that has its answer may invoke again at once.
func TestAnsweredProcessIsFree(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	for range 200 {
		invoke(t, f, event{"do": "echo"})
	}
}

func TestCancelledCallerDoesNotStopTheFunction(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{})
	dir := t.TempDir()
	hold, mark := filepath.Join(dir, "hold"), filepath.Join(dir, "mark")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		started(t, mark)
		cancel()
	}()
	result, err := f.Invoke(ctx, payload(t, event{"do": "wait", "text": hold, "started": mark}))
	if !errors.Is(err, context.Canceled) || result.RequestID == "" {
		t.Fatalf("got %+v, %v, want Canceled with a request id", result, err)
	}
	if _, err := f.Invoke(t.Context(), nil); !errors.Is(err, lambda.ErrThrottled) {
		t.Errorf("while it runs on: got %v, want ErrThrottled", err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the invocation has ended by itself", func() bool {
		return strings.Contains(lines.text(), "END RequestId: "+result.RequestID) && !strings.Contains(lines.text(), "Status:")
	})
}

func TestWarm(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{Concurrency: 2})
	for range 3 { // the third has nothing to do
		if err := f.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if result := invoke(t, f, event{"do": "echo"}); result.InitDuration != 0 {
		t.Errorf("got init duration %v after Warm, want 0", result.InitDuration)
	}
}

func TestInvokeWaitsForTheProcessThatIsWarmed(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{Concurrency: 1})
	var both sync.WaitGroup
	both.Go(func() {
		if err := f.Warm(t.Context()); err != nil {
			t.Errorf("Warm: %v", err)
		}
	})
	both.Go(func() { invoke(t, f, event{"do": "echo"}) })
	both.Wait()
}

func TestCloseLetsTheInvocationFinish(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	dir := t.TempDir()
	hold, mark := filepath.Join(dir, "hold"), filepath.Join(dir, "mark")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan lambda.Result, 1)
	go func() { ended <- invoke(t, f, event{"do": "wait", "text": hold, "started": mark}) }()
	pid := started(t, mark)
	closed := make(chan error, 1)
	go func() { closed <- f.Close(t.Context()) }()
	eventually(t, "the function refuses", func() bool {
		_, err := f.Invoke(t.Context(), nil)
		return errors.Is(err, lambda.ErrClosed)
	})
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	if result := <-ended; string(result.Payload) != `"done"` {
		t.Errorf("got %s (%q), want done", result.Payload, result.FunctionError)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
	if running(pid) {
		t.Errorf("process %d still runs after Close", pid)
	}
}

func TestCloseKillsWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	mark := filepath.Join(t.TempDir(), "mark")
	ended := make(chan error, 1)
	go func() {
		_, err := f.Invoke(context.Background(), payload(t, event{"do": "sleep", "started": mark}))
		ended <- err
	}()
	pid := started(t, mark)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: got %v, want Canceled", err)
	}
	if running(pid) {
		t.Errorf("process %d still runs after Close", pid)
	}
	if err := <-ended; !errors.Is(err, lambda.ErrClosed) {
		t.Errorf("Invoke: got %v, want ErrClosed", err)
	}
}

func TestProcessDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), asParent+"="+binary, sleepEvent+"="+string(payload(t, event{"do": "sleep", "started": mark})))
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child := started(t, mark)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	gone(t, child)
}

func TestSIGTERMForThoseWhoAskForIt(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{Env: []string{"INIT=sigterm"}})
	invoke(t, f, event{"do": "echo"})
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.text(), "bye") {
		t.Errorf("the SIGTERM handler did not run:\n%s", lines.text())
	}
}

func TestEndedTellsWhatAProcessUsed(t *testing.T) {
	t.Parallel()
	ended := make(chan *os.ProcessState, 1)
	f, _ := start(t, lambda.Config{Ended: func(s *os.ProcessState) { ended <- s }})
	invoke(t, f, event{"do": "echo"})
	if len(ended) > 0 {
		t.Error("the process counts as ended while it is idle")
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-ended:
		if used := s.UserTime() + s.SystemTime(); used <= 0 {
			t.Errorf("processor time is %v, want some", used)
		}
	default:
		t.Error("the function is closed and its process has not been reported")
	}
}
