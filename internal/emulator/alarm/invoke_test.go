package alarm_test

import (
	"path/filepath"
	"testing"
	"time"

	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/lambda"
)

func TestFailedFunctionIsInvokedTwiceMore(t *testing.T) {
	t.Parallel()
	done := make(chan lambda.AsyncResult, 1)
	async := lambda.NewAsync(lambda.AsyncConfig{
		RetryDelay: time.Millisecond, Logger: quiet, Done: func(end lambda.AsyncResult) { done <- end },
	})
	t.Cleanup(func() { _ = async.Close(t.Context()) })
	function := lambda.New(lambda.Config{Name: "dlqalarm", Binary: filepath.Join(t.TempDir(), "absent")})
	if err := alarm.Invoke(async, function)([]byte(`{}`)); err != nil {
		t.Fatalf("invoke: %v", err)
	}
	select {
	case end := <-done:
		if end.Function != "dlqalarm" || end.Attempts != 3 || end.Result.FunctionError == "" {
			t.Errorf("got %s after %d attempts with error %q (%v), want dlqalarm after 3 with one", end.Function, end.Attempts, end.Result.FunctionError, end.Err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the event has not ended after a minute")
	}
}
