package agent_test

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// block is a Go block of the README; its first line says where it belongs.
var block = regexp.MustCompile("(?m)^```go\n// (\\S+)\n((?s:.*?))^```$")

// TestTheReadmesTaskTypeWorks puts what the README says about a task type of one's own in its place, beneath the compiler only, and
// runs its test.
func TestTheReadmesTaskTypeWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the package once more")
	}
	const root = "../.."
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Add your own task type in ten minutes\n")
	section, _, _ = strings.Cut(section, "\n## ")

	const list = "internal/agent/agent.go"
	scratch := t.TempDir()
	overlay := map[string]string{}
	for _, b := range block.FindAllStringSubmatch(section, -1) {
		path, code := b[1], strings.TrimLeft(b[2], "\n")
		if path == list {
			code = addLine(t, filepath.Join(root, list), code)
		}
		formatted, err := format.Source([]byte(code))
		if err != nil || !bytes.Equal(formatted, []byte(code)) {
			t.Errorf("%s in the README is not as gofmt has it (%v)", path, err)
		}
		copied := filepath.Join(scratch, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		place, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		overlay[place] = copied
	}
	if len(overlay) != 3 {
		t.Fatalf("the README has %d blocks of Go with a path of their own, want the file, the line and the test", len(overlay))
	}

	spec, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", file, "-count=1", "-v", "-run", "^TestSummarize", ".").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestSummarize")) {
		t.Errorf("the README's test: %v\n%s", err, out)
	}
}

// addLine is the list of task types with a line added at its end.
func addLine(t *testing.T, path, line string) string {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, list, found := strings.Cut(string(source), "return []task.Type{\n")
	entries, after, closed := strings.Cut(list, "\t}\n")
	if !found || !closed {
		t.Fatalf("%s has no list of task types", path)
	}
	return before + "return []task.Type{\n" + entries + line + "\t}\n" + after
}
