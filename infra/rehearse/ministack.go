package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// miniStack is a running MiniStack.
type miniStack struct {
	url string
	log string // the file that it writes
}

const pidFile = "pid"

// startMiniStack starts one on a free port of the loopback interface, with all it writes below dir.
func startMiniStack(ctx context.Context, dir string) (*miniStack, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	m := &miniStack{url: "http://127.0.0.1:" + port, log: filepath.Join(dir, "ministack.log")}
	log, err := os.Create(m.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o750); err != nil {
		return nil, err
	}
	command := exec.Command(filepath.Join(filepath.Dir(dir), "..", "venv", "bin", "ministack")) //nolint:gosec,noctx // G204: installed by make; ended by cleanUp
	command.Dir, command.Stdout, command.Stderr, command.SysProcAttr = dir, log, log, child()
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp,
		"BIND_HOST=127.0.0.1", "MINISTACK_HOST=127.0.0.1", "GATEWAY_PORT=" + port,
		"S3_DATA_DIR=" + filepath.Join(dir, "s3"), "STATE_DIR=" + filepath.Join(dir, "state"),
		// Deviation: functions of the runtime provided are not told where the AWS APIs are, unless MiniStack has this in
		// its own environment.
		"AWS_ENDPOINT_URL=" + m.url,
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start MiniStack: %w; make rehearse installs it", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	if err := os.WriteFile(filepath.Join(dir, pidFile), []byte(strconv.Itoa(command.Process.Pid)), 0o600); err != nil {
		return nil, err
	}
	if err := m.await(ctx, ended); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, m.lastLines())
	}
	return m, onLoopbackOnly(ctx, port)
}

// await returns when MiniStack answers.
func (m *miniStack) await(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, "MiniStack answers", func() (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("MiniStack has ended: %w", err)
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/_ministack/health", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
}

func (m *miniStack) lastLines() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// cleanUp ends what a run has started, also one that was killed, and removes its folder.
func cleanUp(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, pidFile)) //nolint:gosec // G304: our own folder
	if err == nil {
		if pid, err := strconv.Atoi(string(text)); err == nil && isMiniStack(pid) {
			end(pid)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// isMiniStack guards against a process that has been given the number of one long gone.
func isMiniStack(pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.Contains(line, []byte("ministack"))
}

// end stops a process and its group: politely, since it then ends the functions' processes, and after five seconds not.
func end(pid int) {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = poll(ctx, "MiniStack ends", func() (bool, error) { return !isMiniStack(pid), nil })
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// onLoopbackOnly fails when others on the network can reach the port.
func onLoopbackOnly(ctx context.Context, port string) error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addresses {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip.IP.String(), port)); err == nil {
			_ = c.Close()
			return fmt.Errorf("MiniStack listens at %v", ip.IP)
		}
	}
	return nil
}

// poll asks every 100 ms until it is so, and gives up with the context.
func poll(ctx context.Context, what string, so func() (bool, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
