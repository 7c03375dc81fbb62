package command_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"agentworker/infra/agentctl/command"
)

// Every call of agentctl that the README shows is one that agentctl understands.
func TestReadmeCallsAgentctlAsItIs(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile("(?:    (?:build/)?|`(?:build/)?)agentctl ([^`#\n]+)").FindAllStringSubmatch(string(readme), -1)
	if len(calls) < 20 {
		t.Errorf("the README has %d calls, want many", len(calls))
	}
	for _, call := range calls {
		args := strings.Fields(call[1])
		var out, problems bytes.Buffer
		// Flags are read, and the command is looked for, before its help is shown.
		code := command.Main(t.Context(), append(args, "--help"), command.Streams{In: strings.NewReader(""), Out: &out, Err: &problems})
		if code != 0 || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("agentctl %s: exit code %d\n%s", call[1], code, problems.String())
		}
	}
}
