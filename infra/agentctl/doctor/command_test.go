package doctor_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"agentworker/infra/agentctl/command"
	"agentworker/infra/agentctl/doctor"
)

// agentctl runs the command line in this process, for the stack at an endpoint.
func agentctl(t *testing.T, endpoint string, args ...string) (code int, out, problems string) {
	t.Helper()
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	t.Setenv("AWS_PORT", "")
	var stdout, stderr bytes.Buffer
	code = command.Main(t.Context(), append([]string{"--local"}, args...), command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// What people and scripts get: sentences or JSON, and the exit code.
func TestAgentctlDoctor(t *testing.T) {
	s := start(t)
	code, out, problems := agentctl(t, s.chain.AWSURL(), "doctor")
	if code != 0 || problems != "" || !strings.HasSuffix(out, " checks, 0 wrong\n") || !strings.Contains(out, "not checked: the roles' permissions") {
		t.Errorf("sound: got exit code %d\n%s%s", code, out, problems)
	}

	s.set(s.Tasks.URL, map[string]string{"SqsManagedSseEnabled": "false"})
	s.set(s.Tasks.DeadLetterURL, map[string]string{"MessageRetentionPeriod": "3600"})
	code, out, problems = agentctl(t, s.chain.AWSURL(), "doctor")
	worst := "critical  agent-tasks: dead-letter queue keeps messages for 1h0m0s; set more than the queue's 168h0m0s, since the time in the queue counts\n" +
		"  promise  nothing accepted is lost\n" +
		"  mend     aws sqs set-queue-attributes --attributes MessageRetentionPeriod=…; or start make run again\n"
	if code != 1 || problems != "" || !strings.HasPrefix(out, worst) || !strings.HasSuffix(out, " checks, 2 wrong\n") {
		t.Errorf("two faults: got exit code %d\n%s%s\nwant 1, and first\n%s", code, out, problems, worst)
	}

	code, out, problems = agentctl(t, s.chain.AWSURL(), "--json", "doctor")
	var report doctor.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || problems != "" {
		t.Errorf("as JSON: got exit code %d, %v\n%s%s", code, err, out, problems)
	}
	only(t, report, found{"dead-letter-retention", "agent-tasks"}, found{doctor.Encryption, "agent-tasks"})

	d := s.behind(t, func(w http.ResponseWriter, c call) bool {
		return c.name == "DescribeTable" && deny(w, c, "AccessDeniedException")
	})
	code, out, _ = agentctl(t, *d.AWS.BaseEndpoint, "doctor")
	if want := "agent-checkpoints could not be looked at: it needs dynamodb:DescribeTable"; code != 1 || !strings.Contains(out, want) || !strings.HasSuffix(out, "2 wrong, 1 unknown\n") {
		t.Errorf("without a permission: got exit code %d\n%s, want 1 and %q", code, out, want)
	}
	if code, out, problems = agentctl(t, "http://127.0.0.1:1", "doctor"); code != 3 || out != "" || !strings.Contains(problems, "make run") {
		t.Errorf("nobody there: got exit code %d\n%s%s", code, out, problems)
	}
	if code, _, _ = agentctl(t, s.chain.AWSURL(), "doctor", "now"); code != 2 {
		t.Errorf("with an argument: got exit code %d, want 2", code)
	}
}
