// Package dynamodb runs dynoxide, a DynamoDB-compatible server in one static binary, beside the local chain and
// beside tests: it installs it, starts it on a free loopback port, watches it and stops it.
package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Version is the release of dynoxide that is installed and that the tests have been run against.
const Version = "1.2.1"

// ErrUnavailable is what Install's errors are when dynoxide cannot be had on this machine: no npm, no network, or no
// build for this operating system and processor. The error's text names the remedy.
var ErrUnavailable = errors.New("dynoxide is not available")

const remedy = "set AWS_ENDPOINT_URL_DYNAMODB to a DynamoDB of your own (DynamoDB Local, for one) to do without it"

// Install makes sure that dynoxide is below toolsDir, an existing or new folder, and returns the path of its binary.
// It costs one stat when the binary is there. Otherwise it downloads the package with npm; processes that do so at the
// same time wait for one another, and a download that breaks off leaves nothing that a later call would take for whole.
// Errors are ErrUnavailable where nothing is broken but dynoxide cannot be had. Safe for concurrent use.
func Install(ctx context.Context, toolsDir string) (binary string, err error) {
	pkg, err := npmPackage(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	toolsDir, err = filepath.Abs(toolsDir)
	if err != nil {
		return "", fmt.Errorf("install dynoxide: %w", err)
	}
	home := filepath.Join(toolsDir, "dynoxide-"+Version)
	binary = filepath.Join(home, "node_modules", filepath.FromSlash(pkg), "dynoxide")
	if installed(binary) {
		return binary, nil
	}

	if err := os.MkdirAll(toolsDir, 0o755); err != nil {
		return "", fmt.Errorf("install dynoxide: %w", err)
	}
	lock := flock.New(filepath.Join(toolsDir, ".dynoxide.lock"))
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return "", fmt.Errorf("install dynoxide: wait for another installation: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if installed(binary) {
		return binary, nil
	}
	if err := download(ctx, toolsDir, home, pkg+"@"+Version); err != nil {
		return "", err
	}
	if !installed(binary) {
		return "", fmt.Errorf("%w: %s@%s holds no binary at %s; %s", ErrUnavailable, pkg, Version, binary, remedy)
	}
	return binary, nil
}

// download installs spec into home by way of a folder beside it, because only the rename is all or nothing.
func download(ctx context.Context, toolsDir, home, spec string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w: npm is not on the PATH; install Node.js, or %s: %w", ErrUnavailable, remedy, err)
	}
	staging, err := os.MkdirTemp(toolsDir, ".dynoxide-")
	if err != nil {
		return fmt.Errorf("install dynoxide: %w", err)
	}
	defer os.RemoveAll(staging)

	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", staging,
		"--no-save", "--no-package-lock", "--no-audit", "--no-fund", spec)
	cmd.Dir = staging
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: npm install %s failed, and npm said %q; %s: %w",
			ErrUnavailable, spec, lastLines(output.String(), 5), remedy, err)
	}
	if err := os.RemoveAll(home); err != nil {
		return fmt.Errorf("install dynoxide: remove what an older installation left: %w", err)
	}
	if err := os.Rename(staging, home); err != nil {
		return fmt.Errorf("install dynoxide: %w", err)
	}
	return nil
}

// npmPackage is the name of the npm package that holds the binary for an operating system and a processor in Go's words.
func npmPackage(goos, goarch string) (string, error) {
	arch, ok := map[string]string{"amd64": "x64", "arm64": "arm64"}[goarch]
	if !ok || (goos != "linux" && goos != "darwin") {
		return "", fmt.Errorf("%w: there is no build for %s/%s; %s", ErrUnavailable, goos, goarch, remedy)
	}
	return "@dynoxide/" + goos + "-" + arch, nil
}

func installed(binary string) bool {
	info, err := os.Stat(binary)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&fs.FileMode(0o100) != 0
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
