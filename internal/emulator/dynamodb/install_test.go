package dynamodb_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"agentworker/internal/emulator/dynamodb"
)

func TestInstallIsIdempotentAndCheap(t *testing.T) {
	t.Parallel()
	tools := toolsDir(t)
	first, err := dynamodb.Install(t.Context(), tools)
	if err != nil {
		t.Fatalf("install: %v", err)
	}
	// A context that has ended would fail any download or wait.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second, err := dynamodb.Install(ctx, tools)
	if err != nil || second != first {
		t.Errorf("second install: got %q, %v, want %q, no error", second, err, first)
	}
}

func TestInstallWithoutNpmNamesTheRemedy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := dynamodb.Install(t.Context(), t.TempDir())
	if !errors.Is(err, dynamodb.ErrUnavailable) || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL_DYNAMODB") {
		t.Errorf("got %v, want ErrUnavailable that names AWS_ENDPOINT_URL_DYNAMODB", err)
	}
}

func TestInstallThatBreaksOffLeavesNothing(t *testing.T) {
	fakeNpm(t, "mkdir -p \"$3/node_modules\"\necho 'npm error 404 Not Found' >&2\nexit 1\n")
	tools := t.TempDir()
	_, err := dynamodb.Install(t.Context(), tools)
	if !errors.Is(err, dynamodb.ErrUnavailable) || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("got %v, want ErrUnavailable with npm's words", err)
	}
	left, err := filepath.Glob(filepath.Join(tools, "*dynoxide-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v, want nothing", left, err)
	}
}

func TestInstallsAtTheSameTimeDownloadOnce(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	// The last argument is @dynoxide/<platform>@<version>.
	fakeNpm(t, `echo called >> `+log+`
for spec; do :; done
dir="$3/node_modules/${spec%@*}"
mkdir -p "$dir" && echo '#!/bin/sh' > "$dir/dynoxide" && chmod 755 "$dir/dynoxide"
`)
	tools := filepath.Join(t.TempDir(), "new", "folder")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := dynamodb.Install(t.Context(), tools); err != nil {
				t.Errorf("install: %v", err)
			}
		})
	}
	all.Wait()
	calls, err := os.ReadFile(log)
	if err != nil || string(calls) != "called\n" {
		t.Errorf("npm was called %d times (%v), want once", strings.Count(string(calls), "\n"), err)
	}
}

// fakeNpm puts a script in npm's place.
func fakeNpm(t *testing.T, script string) {
	t.Helper()
	bin := t.TempDir()
	writeScript(t, filepath.Join(bin, "npm"), script)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func writeScript(t *testing.T, path, script string) string {
	t.Helper()
	// A process that another test forks meanwhile would hold the file open for writing, and it could not be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
