package main_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workDir holds the built chain as make run leaves it.
var workDir string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chain-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	workDir = dir
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	targets := map[string]string{"./infra/local": "chain"}
	for _, name := range []string{"worker", "submit", "dlqalarm"} {
		targets["./functions/"+name] = filepath.Join(name, "bootstrap")
	}
	for pkg, out := range targets {
		build := exec.CommandContext(context.Background(), "go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, "build", "local", out), pkg)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, text)
			return 1
		}
	}
	if err := os.Symlink(filepath.Join(root, ".tools"), filepath.Join(dir, ".tools")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func chain(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(workDir, "build", "local", "chain"))
	cmd.Dir = workDir
	cmd.Env = append(os.Environ(), append([]string{"PORT=0", "AWS_PORT=0", "DATA_DIR=", "WORKERS=1"}, env...)...)
	return cmd
}

func TestEveryWrongSettingIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	cmd := chain(t, "PORT=http", "AWS_PORT=70000", "WORKERS=0", "AWS_ENDPOINT_URL_SQS=localhost", "DATA_DIR=/dev/null/state")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code is %d (%v), want 1", code, err)
	}
	for _, want := range []string{
		"PORT is not a whole number", "AWS_PORT is 70000; set 1 to 65535", "WORKERS is 0; set 1 to 100",
		"AWS_ENDPOINT_URL_SQS is not a URL", "DATA_DIR cannot be used",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the message lacks %q:\n%s", want, out)
		}
	}
}

// up starts the chain in a process group of its own, and returns once it is up.
func up(t *testing.T, cmd *exec.Cmd) (lines *bufio.Reader, out, problems *bytes.Buffer) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, problems = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stderr = problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewReader(io.TeeReader(pipe, out))
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("it ended before it was up: %v\n%s%s", err, out, problems)
		}
		if strings.HasPrefix(line, "Ctrl-C stops it.") {
			return lines, out, problems
		}
	}
}

// Started, stopped by a signal: it says where it listens, finishes, says what it did, exits with 0, and leaves no process.
func TestItStopsInGoodOrder(t *testing.T) {
	t.Parallel()
	cmd := chain(t, "DATA_DIR="+filepath.Join(t.TempDir(), "state"))
	lines, out, problems := up(t, cmd)
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v, want exit code 0\n%s", err, problems)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("stopping took %v", took)
	}
	for _, want := range []string{"Ready after", "http://127.0.0.1:", "Stopping", "Stopped. 0 batches", "The state is kept in"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); err == nil {
		t.Error("a process of its group is left")
	}
}
