package lambda_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworker/internal/emulator/lambda"
)

func TestFailedInit(t *testing.T) {
	t.Parallel()
	const short = 400 * time.Millisecond
	tests := []struct {
		name, init, binary string
		timeout            time.Duration
		want               string // with ID for the request id
		report             string
	}{
		{"exit", "exit", "", 0, `{"errorType":"Runtime.ExitError","errorMessage":"RequestId: ID Error: Runtime exited with error: exit status 7"}`, "Status: error\tError Type: Runtime.ExitError"},
		{"reported", "error", "", 0, `{"errorType":"Config.Missing","errorMessage":"TABLE is not set"}`, "Status: error\tError Type: Config.Missing"},
		{"timeout", "sleep", "", short, `{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: ID Error: Task timed out after 0.40 seconds"}`, "Status: timeout"},
		{"no binary", "", "/does/not/exist", 0, `{"errorType":"Runtime.InvalidEntrypoint","errorMessage":"RequestId: ID Error: `, "Status: error\tError Type: Runtime.InvalidEntrypoint"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f, lines := start(t, lambda.Config{Binary: test.binary, Env: []string{"INIT=" + test.init}, InitTimeout: test.timeout, Timeout: test.timeout})
			for range 2 { // the next invocation tries again
				result := invoke(t, f, event{"do": "echo"})
				want := strings.ReplaceAll(test.want, "ID", result.RequestID)
				if !strings.HasPrefix(string(result.Payload), want) || result.FunctionError != "Unhandled" {
					t.Errorf("got %s (%q), want %s\n%s", result.Payload, result.FunctionError, want, lines.text())
				}
			}
			// Lambda tries the init twice for each invocation.
			if got := strings.Count(lines.text(), "INIT_REPORT"); got != 4 {
				t.Errorf("inits: got %d, want 4\n%s", got, lines.text())
			}
			for _, phase := range []string{"init", "invoke"} {
				if want := fmt.Sprintf("Phase: %s\t%s", phase, test.report); !strings.Contains(lines.text(), want) {
					t.Errorf("log lacks %q:\n%s", want, lines.text())
				}
			}
			var failed *lambda.InitError
			if err := f.Warm(t.Context()); !errors.As(err, &failed) {
				t.Errorf("Warm: got %v, want an InitError", err)
			}
		})
	}
}

// A process that dies between its first request and the event is a crash, not one that died while idle: no new one is
// tried for ever.
func TestProcessThatVanishesAfterItsInit(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{Env: []string{"INIT=vanish"}})
	for range 10 {
		result := invoke(t, f, event{"do": "echo"})
		want := fmt.Sprintf(`{"errorType":"Runtime.ExitError","errorMessage":"RequestId: %s Error: Runtime exited with error: exit status 9"}`, result.RequestID)
		if string(result.Payload) != want || result.FunctionError != "Unhandled" {
			t.Fatalf("got %s (%q), want %s\n%s", result.Payload, result.FunctionError, want, lines.text())
		}
	}
}

func TestSecondInitSaves(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{Env: []string{"INIT=once:" + filepath.Join(t.TempDir(), "mark")}})
	result := invoke(t, f, event{"do": "echo"})
	if result.FunctionError != "" {
		t.Errorf("got %s, want success of the second init\n%s", result.Payload, lines.text())
	}
}
