package dynamodb_test

import (
	"bufio"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestKilledParentTakesTheServerAlong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestHelperParent$", "-test.v")
	parent.Env = append(os.Environ(), "DYNAMODB_TEST_PARENT=1")
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(stdout); pid == 0 && lines.Scan(); {
		if _, number, ok := strings.Cut(lines.Text(), "pid="); ok {
			pid, _ = strconv.Atoi(number)
		}
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if pid == 0 {
		t.Fatal("the parent process named no server")
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	await(t, "the server to end after its parent", func() bool { return !running(pid) })
}

// running tells a live process from none and from one that only waits to be reaped by whoever inherited it.
func running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// findPid is the child of this process, or of no one we know, that was started with the endpoint's port.
func findPid(endpoint string) (int, bool) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return 0, false
	}
	out, err := exec.Command("ps", "-axo", "pid=,command=").Output()
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && filepath.Base(fields[1]) == "dynoxide" && strings.Contains(line, "--port "+u.Port()) {
			pid, err := strconv.Atoi(fields[0])
			return pid, err == nil
		}
	}
	return 0, false
}

func pidOn(t *testing.T, endpoint string) int {
	t.Helper()
	pid, ok := findPid(endpoint)
	if !ok {
		t.Fatalf("no dynoxide process for %s", endpoint)
	}
	return pid
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// await polls, because what is watched is another process.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("waited a minute for %s", what)
		case <-tick.C:
		}
	}
}

func newHTTPClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
