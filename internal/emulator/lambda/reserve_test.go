package lambda_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"agentworker/internal/emulator/lambda"
)

// Reserved concurrency bounds the invocations that run at once, below the number of processes.
func TestReservedConcurrency(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{Concurrency: 3})
	if n, set := f.Reserved(); set {
		t.Errorf("at first: got %d reserved, want none", n)
	}
	if err := f.Reserve(-1); err == nil {
		t.Error("-1: got no error")
	}
	if err := f.Reserve(1); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hold, mark := filepath.Join(dir, "hold"), filepath.Join(dir, "mark")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { invoke(t, f, event{"do": "wait", "text": hold, "started": mark}) })
	started(t, mark)
	if _, err := f.Invoke(t.Context(), payload(t, event{"do": "echo"})); !errors.Is(err, lambda.ErrThrottled) {
		t.Errorf("second of one reserved: got %v, want ErrThrottled", err)
	}
	if err := f.Reserve(2); err != nil {
		t.Fatal(err)
	}
	invoke(t, f, event{"do": "echo"})
	if err := f.Reserve(0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	running.Wait() // what runs is not cut off
	if _, err := f.Invoke(t.Context(), payload(t, event{"do": "echo"})); !errors.Is(err, lambda.ErrThrottled) {
		t.Errorf("none reserved: got %v, want ErrThrottled", err)
	}
	f.Unreserve()
	invoke(t, f, event{"do": "echo"})
}
