package main_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworker/internal/emulator"
	"agentworker/internal/topology"
)

// built holds this command and the functions, for this machine.
var built string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "invoke-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built = dir
	for target, pkg := range map[string]string{
		"invoke": "./infra/invoke", "worker/bootstrap": "./functions/worker", "submit/bootstrap": "./functions/submit", "dlqalarm/bootstrap": "./functions/dlqalarm",
	} {
		build := exec.CommandContext(context.Background(), "go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, target), pkg)
		build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
			return 1
		}
	}
	return m.Run()
}

// invoke runs the command as make does.
func invoke(t *testing.T, port, function, event string) (answer, log string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(built, "invoke"), "-bin", built, "-function", function, "-event", event)
	command.Dir = filepath.Join("..", "..")
	command.Env = append(os.Environ(), "AWS_PORT="+port)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err = command.Run()
	return out.String(), errs.String(), err
}

// The events that the README names work against the local chain.
func TestInvoke(t *testing.T) {
	chain, err := emulator.Start(t.Context(), emulator.Config{
		Stack: topology.Default(), Workers: 1, BinDir: built, ToolsDir: filepath.Join("..", "..", ".tools"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := chain.Stop(); err != nil {
			t.Error(err)
		}
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(chain.AWSURL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ function, event, answer string }{
		{"worker", "functions/worker/testdata/sqs.json", `{"batchItemFailures":[]}` + "\n"},
		{"submit", "functions/submit/testdata/apigateway.json", `"statusCode":202`},
		{"dlqalarm", "functions/dlqalarm/testdata/alarm.json", `"alarm":"agent-tasks-dlq-depth"`},
	} {
		t.Run(test.function, func(t *testing.T) {
			answer, log, err := invoke(t, port, test.function, test.event)
			if err != nil || !strings.Contains(answer, test.answer) {
				t.Errorf("answer: got %q (%v), want %q in it; the log:\n%s", answer, err, test.answer, log)
			}
			for _, want := range []string{"START RequestId:", "REPORT RequestId:", "Duration:", "Init Duration:", "Max Memory Used:"} {
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
			}
		})
	}
	t.Run("the worker has worked", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, chain.APIURL()+"/agent/result/th-invoke", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("the thread's result: got %s, want 200", response.Status)
		}
	})
	for what, test := range map[string]struct{ function, event, want string }{
		"no such function": {"walker", "functions/worker/testdata/sqs.json", `there is no function "walker"; set FUNCTION to worker, submit or dlqalarm`},
		"no such event":    {"worker", "nowhere.json", "nowhere.json: no such file or directory; set EVENT=file.json"},
		"no JSON":          {"worker", "Makefile", "the event in Makefile is not JSON"},
	} {
		t.Run(what, func(t *testing.T) {
			if _, log, err := invoke(t, port, test.function, test.event); err == nil || !strings.Contains(log, test.want) {
				t.Errorf("got %v, %q, want %q", err, log, test.want)
			}
		})
	}
}

// Without the local chain, the message says what to start.
func TestInvokeWithoutTheChain(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	_, log, err := invoke(t, port, "worker", "functions/worker/testdata/sqs.json")
	if want := "start it with make run in another terminal, or set AWS_PORT"; err == nil || !strings.Contains(log, want) {
		t.Errorf("got %v, %q, want %q", err, log, want)
	}
}
