package lambda_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworker/internal/emulator/lambda"
)

// A process can answer neither for a past invocation nor for one that another process holds.
func TestAnswerForAnotherInvocationIsRefused(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{Concurrency: 2})
	mark := filepath.Join(t.TempDir(), "mark")
	past := tell(t, f)
	base := "http://" + past.Env["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/invocation/"
	if got := string(invoke(t, f, event{"do": "answer other", "url": base + past.RequestID + "/response"}).Payload); got != "400" {
		t.Errorf("answer for the past invocation: got %s, want 400", got)
	}
	victim := make(chan error, 1)
	go func() {
		_, err := f.Invoke(context.Background(), payload(t, event{"do": "sleep", "started": mark}))
		victim <- err
	}()
	started(t, mark)
	var running string
	for _, line := range lines.all() {
		if id, found := strings.CutPrefix(line.Text, "START RequestId: "); found {
			running = strings.Fields(id)[0]
		}
	}
	second := tell(t, f)
	if second.PID == past.PID {
		t.Fatalf("process %d has two invocations", second.PID)
	}
	url := "http://" + second.Env["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/invocation/" + running + "/response"
	if got := string(invoke(t, f, event{"do": "answer other", "url": url}).Payload); got != "400" {
		t.Errorf("answer for another process's invocation: got %s, want 400", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = f.Close(ctx)
	if err := <-victim; !errors.Is(err, lambda.ErrClosed) {
		t.Errorf("the victim: got %v, want ErrClosed because nobody answered it", err)
	}
}

// The first answer counts, also when the function never asks for the next event.
func TestFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{Timeout: 5 * time.Second})
	result := invoke(t, f, event{"do": "answer twice"})
	if string(result.Payload) != `"first"` || result.FunctionError != "" {
		t.Errorf("got %s (%q), want first", result.Payload, result.FunctionError)
	}
	if !strings.Contains(lines.text(), "answered 202 403") {
		t.Errorf("want the second answer refused with 403:\n%s", lines.text())
	}
}

func TestNextWithoutAnswerIsRefused(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	if got := string(invoke(t, f, event{"do": "next early"}).Payload); got != "403" {
		t.Errorf("got %s, want 403", got)
	}
}
