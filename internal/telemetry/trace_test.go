package telemetry_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"agentworker/internal/telemetry"
)

const root = "1-5759e988-bd862e3fe1be46a994272793"

func TestTraceRootOfAHeader(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Root=" + root + ";Parent=53995c3f42cd8ad8;Sampled=1":  root,
		"Self=1-67891234-12456789abcdef012345678;Root=" + root: root,
		" Root=" + root + " ; Lineage=1:a87bd80c:1":            root,
		"Root=" + root + "\n{\"level\":\"ERROR\"}":             "",
		"Root=1-5759e988":                          "",
		"Root=2-5759e988-bd862e3fe1be46a994272793": "",
		"Parent=53995c3f42cd8ad8":                  "",
		"":                                         "",
		strings.Repeat("Root=;", 1000) + "Root=" + strings.ToUpper(root): "",
	} {
		if got := telemetry.TraceRoot(header); got != want {
			t.Errorf("root of %.80q: got %q, want %q", header, got, want)
		}
	}
}

func TestWorkBelongsToItsOwnTraceOrToTheInvocations(t *testing.T) {
	t.Parallel()
	const own = "1-00000000-000000000000000000000001"
	invocation := context.WithValue(t.Context(), "x-amzn-trace-id", "Root="+root+";Sampled=0") //nolint:staticcheck,revive // the key is aws-lambda-go's
	for name, tt := range map[string]struct {
		ctx  context.Context //nolint:containedctx // the case
		want string
	}{
		"outside of an invocation": {t.Context(), ""},
		"the invocation's":         {invocation, root},
		"its own":                  {telemetry.WithTraceID(invocation, own), own},
		"none of its own":          {telemetry.WithTraceID(invocation, ""), root},
	} {
		if got := telemetry.TraceID(tt.ctx); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// The format is read from the environment when the process starts.
func TestEachLogLineHasItsTrace(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./testdata/logline")
	cmd.Env = append(cmd.Environ(), "AWS_LAMBDA_LOG_FORMAT=JSON")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"trace_id":"`+root+`"`) || strings.Contains(lines[1], "trace_id") {
		t.Errorf("got:\n%s\nwant the trace in the first line only", out)
	}
}
