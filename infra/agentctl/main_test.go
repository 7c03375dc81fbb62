package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"agentworker/infra/agentctl/command"
	"agentworker/internal/emulator"
	"agentworker/internal/topology"
)

// The chain that all tests share, and the command line as make agentctl builds it.
var (
	chain  *emulator.Chain
	binary string
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withChain{m}) }

type withChain struct{ m *testing.M }

func (w withChain) Run() int {
	dir, err := os.MkdirTemp("", "agentctl-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	code, err := w.run(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

func (w withChain) run(dir string) (code int, err error) {
	ctx := context.Background()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return 1, err
	}
	binary = filepath.Join(dir, "agentctl")
	for pkg, out := range map[string]string{
		"./infra/agentctl": binary, "./functions/worker": filepath.Join(dir, "worker", "bootstrap"),
		"./functions/submit": filepath.Join(dir, "submit", "bootstrap"), "./functions/dlqalarm": filepath.Join(dir, "dlqalarm", "bootstrap"),
	} {
		build := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-o", out, pkg)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	chain, err = emulator.Start(ctx, emulator.Config{
		Stack: topology.Default(), Workers: 2, BinDir: dir, ToolsDir: filepath.Join(root, ".tools"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, chain.Stop()) }()
	if err := os.Setenv("AWS_ENDPOINT_URL", chain.AWSURL()); err != nil { // for calls within this process
		return 1, err
	}
	return w.m.Run(), nil
}

// run is a finished call of agentctl.
type run struct {
	code     int
	out, err string
}

// calling is agentctl for the test's chain, in an environment of nothing else.
func calling(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, binary, append([]string{"--local"}, args...)...)
	c.Env = []string{"AWS_ENDPOINT_URL=" + chain.AWSURL(), "HOME=/nonexistent"}
	return c
}

func agentctl(t *testing.T, args ...string) run {
	t.Helper()
	return finish(t, calling(t.Context(), args...))
}

func finish(t *testing.T, c *exec.Cmd) run {
	t.Helper()
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return run{c.ProcessState.ExitCode(), out.String(), problems.String()}
}

// want fails the test unless the exit code is the one, and the output holds the texts.
func (r run) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code is %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("the output lacks %q:\n%s%s", text, r.out, r.err)
		}
	}
	if strings.Contains(r.out+r.err, "\x1b") {
		t.Errorf("there is an escape sequence although there is no terminal: %q", r.out+r.err)
	}
}

func decode[T any](t *testing.T, r run) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("the answer is not JSON: %v\n%s%s", err, r.out, r.err)
	}
	return v
}

var names atomic.Int64

// name is an id that no other test has in the chain.
func name(prefix string) string { return fmt.Sprintf("%s-%d", prefix, names.Add(1)) }

type taskView struct {
	TaskID string         `json:"task_id"`
	Status string         `json:"status"`
	Result jsontext.Value `json:"result"`
	Error  *struct {
		Code string `json:"code"`
	} `json:"error"`
}

func TestAQuestionFromItsSubmissionToItsHistory(t *testing.T) {
	t.Parallel()
	thread := name("th")
	r := agentctl(t, "submit", "What is a dead-letter queue?", "--thread", thread, "--wait")
	r.want(t, 0, "succeeded", "A dead-letter queue (DLQ)", "[1] dead-letter-queues")
	if strings.Contains(r.out, "queued as") || !strings.Contains(r.err, "queued as "+thread+".") {
		t.Errorf("the note of its id is not on stderr alone:\n%s\n%s", r.out, r.err)
	}
	second := decode[taskView](t, agentctl(t, "--json", "submit", "And what is idempotency?", "--thread", thread, "--ordered"))
	if second.Status != "queued" || !strings.HasPrefix(second.TaskID, thread+".") {
		t.Errorf("submitted: %+v, want it queued in its thread", second)
	}
	agentctl(t, "status", second.TaskID, "--watch").want(t, 0, second.TaskID, "succeeded")
	if v := decode[taskView](t, agentctl(t, "--json", "status", second.TaskID)); v.Status != "succeeded" || v.Result.Kind() != '{' {
		t.Errorf("status: %+v, want it succeeded with its result", v)
	}
	agentctl(t, "result", thread).want(t, 0, "[1] ")
	history := decode[struct {
		Tasks []taskView `json:"tasks"`
	}](t, agentctl(t, "--json", "history", thread))
	if len(history.Tasks) != 2 || history.Tasks[1].TaskID != second.TaskID {
		t.Errorf("history: %+v, want both tasks, oldest first", history)
	}
	agentctl(t, "history", thread, "--limit", "1").want(t, 0, "attempt 1", " is checkpoint 1")
	agentctl(t, "thread", "show", thread).want(t, 0, "2 tasks, ", "checkpoints, 1 result", second.TaskID, "generate")
	view := decode[struct {
		Checkpoints []struct {
			N    int  `json:"n"`
			Last bool `json:"last"`
		} `json:"checkpoints"`
	}](t, agentctl(t, "--json", "thread", "show", thread))
	n := len(view.Checkpoints)
	if n < 2 || view.Checkpoints[0].N != n || view.Checkpoints[n-1].N != 1 || !view.Checkpoints[0].Last {
		t.Errorf("checkpoints: %+v, want all down to 1, the newest of them a result", view.Checkpoints)
	}
}

func TestATicketAndATaskThatFails(t *testing.T) {
	t.Parallel()
	ticket := name("TK")
	agentctl(t, "submit", "--ticket", ticket, "--status", "resolved", "--wait").want(t, 0, `"status": "resolved"`)
	agentctl(t, "ticket", ticket).want(t, 0, "resolved", "version  1")
	r := agentctl(t, "submit", "--ticket", ticket, "--status", "open", "--wait")
	r.want(t, 1, "failed", "ILLEGAL_TRANSITION")
	id := strings.TrimSpace(strings.TrimPrefix(r.err, "queued as "))
	agentctl(t, "status", id).want(t, 1, "ILLEGAL_TRANSITION")
	watched := agentctl(t, "--json", "status", id, "--watch")
	watched.want(t, 1)
	if v := decode[taskView](t, watched); strings.Count(watched.out, "\n") != 1 || v.Error == nil || v.Error.Code != "ILLEGAL_TRANSITION" {
		t.Errorf("watched: %q, want one line with the failed task", watched.out)
	}
}

// Every byte of a body arrives, and the same key is the same task.
func TestATaskOfAnyType(t *testing.T) {
	t.Parallel()
	thread, key := name("th"), name("key")
	body := `{"question":"What is a dead-letter queue? 🤖", "max_steps" : 3}`
	c := calling(t.Context(), "--json", "submit", "--task", "agent_run", "--thread", thread, "--idempotency-key", key, "-")
	c.Stdin = strings.NewReader(body)
	first := decode[taskView](t, finish(t, c))
	again := decode[taskView](t, agentctl(t, "--json", "submit", "--task", "agent_run", "--thread", thread, "--idempotency-key", key, body))
	if first.TaskID == "" || first.TaskID != again.TaskID {
		t.Errorf("the same key gave %q and %q, want one task", first.TaskID, again.TaskID)
	}
	agentctl(t, "submit", "--task", "agent_run", "--thread", thread, "--idempotency-key", key, `{"question":"Another"}`).want(t, 2, "IDEMPOTENCY_KEY_REUSED")
	agentctl(t, "status", "--watch", first.TaskID).want(t, 0, "succeeded")
}

func TestWhatIsNotThereOrWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status", "th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"}, 1, "NOT_FOUND"},
		{[]string{"result", "th-absent"}, 1, "NOT_FOUND"},
		{[]string{"history", "th-absent"}, 1, "NOT_FOUND"},
		{[]string{"ticket", "absent"}, 1, "NOT_FOUND"},
		{[]string{"thread", "show", "th-absent"}, 1, "there is no thread th-absent"},
		{[]string{"thread", "show", "a#b"}, 2, "a thread's id must consist of"},
		{[]string{"submit", "--ticket", "TK-5", "--status", "odd"}, 2, "INVALID_FIELD: status must be one of"},
		{[]string{"submit", "--task", "no_such_type", "{}"}, 2, "INVALID_FIELD: task must be one of"},
	} {
		r := agentctl(t, c.args...)
		r.want(t, c.code, c.want)
		if r.out != "" || strings.Count(r.err, "\n") > 2 {
			t.Errorf("%v: stdout %q, stderr %q, want one line, on stderr", c.args, r.out, r.err)
		}
	}
}

func TestAThreadIsDeleted(t *testing.T) {
	t.Parallel()
	ticket := name("TK")
	thread := "ticket-" + ticket
	agentctl(t, "submit", "--ticket", ticket, "--status", "resolved", "--wait").want(t, 0)
	agentctl(t, "thread", "delete", thread).want(t, 2, "1 task, 1 checkpoint, 1 result, 1 ticket", "--yes")
	agentctl(t, "thread", "show", thread).want(t, 0, "1 ticket")
	agentctl(t, "thread", "delete", thread, "--yes").want(t, 0, "Deleted 4 items of thread "+thread, "Idempotency-Keys", "24 hours")
	agentctl(t, "ticket", ticket).want(t, 1)
	again := decode[struct {
		Items   int      `json:"items"`
		Remains []string `json:"remains"`
	}](t, agentctl(t, "--json", "thread", "delete", thread, "--yes"))
	if again.Items != 0 || len(again.Remains) != 0 {
		t.Errorf("deleted again: %+v, want nothing left to delete", again)
	}
	delayed := decode[taskView](t, agentctl(t, "--json", "submit", "--task", "rag_query", `{"question":"Later","delay_seconds":900}`))
	late, _, _ := strings.Cut(delayed.TaskID, ".")
	agentctl(t, "thread", "delete", late, "--yes").want(t, 1, "have not ended", delayed.TaskID, "--force")
	agentctl(t, "thread", "delete", late, "--yes", "--force").want(t, 0, "Deleted 1 items")

	agentctl(t, "submit", "--ticket", ticket, "--status", "resolved", "--wait").want(t, 0)
	agentctl(t, "submit", "--ticket", ticket, "--status", "open", "--wait").want(t, 1)
	agentctl(t, "thread", "delete", thread, "--yes").want(t, 1, "may be delivered once more")
	agentctl(t, "ticket", ticket).want(t, 0, "resolved")
}

// A person is asked, and told what would go; only a yes is one.
func TestDeletingIsAskedAbout(t *testing.T) {
	t.Parallel()
	thread := name("th")
	agentctl(t, "submit", "What is a dead-letter queue?", "--thread", thread, "--wait").want(t, 0)
	for _, c := range []struct {
		typed string
		code  int
		want  string
	}{
		{"\n", 1, "nothing was deleted"},
		{"n\n", 1, "nothing was deleted"},
		{"", 1, "nothing was deleted"},
		{"yesterday\n", 1, "nothing was deleted"},
		{"Yes\n", 0, "Deleted "},
	} {
		var out, problems bytes.Buffer
		code := command.Main(t.Context(), []string{"--local", "thread", "delete", thread},
			command.Streams{In: strings.NewReader(c.typed), Out: &out, Err: &problems, InTerminal: true})
		if told := out.String() + problems.String(); code != c.code || !strings.Contains(told, c.want) ||
			!strings.Contains(told, "1 task, ") || !strings.Contains(told, "[y/N]") {
			t.Errorf("%q: exit code %d, %q, want %d and %q", c.typed, code, told, c.code, c.want)
		}
	}
}

// Killed with SIGKILL in the middle, the command ends its job when it is run again.
func TestADeletionIsKilledAndRunAgain(t *testing.T) {
	t.Parallel()
	thread := name("th")
	agentctl(t, "load", "-n", "40", "-c", "10", "--thread", thread, "--threads", "1").want(t, 0)
	thread += "-0"
	backend, err := url.Parse(chain.AWSURL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(backend)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	proxy.Transport = &http.Transport{DisableCompression: true}
	t.Cleanup(proxy.Transport.(*http.Transport).CloseIdleConnections)
	for _, kill := range []struct {
		operation string
		at        int64
	}{{"DeleteItem", 10}, {"BatchWriteItem", 2}} {
		var calls atomic.Int64
		reached := make(chan struct{})
		table := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+kill.operation) {
				switch n := calls.Add(1); {
				case n == kill.at:
					close(reached)
					fallthrough
				case n > kill.at:
					// The process dies while it waits for this answer.
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					return
				}
			}
			proxy.ServeHTTP(w, r)
		}))
		c := calling(t.Context(), "thread", "delete", thread, "--yes")
		c.Env = append(c.Env, "AWS_ENDPOINT_URL_DYNAMODB="+table.URL)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reached:
		case <-time.After(time.Minute):
			t.Fatalf("%s %d was never called", kill.operation, kill.at)
		}
		if err := c.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
		table.Close()
		agentctl(t, "thread", "show", thread).want(t, 0, "checkpoints")
	}
	agentctl(t, "thread", "delete", thread, "--yes").want(t, 0, "checkpoints")
	agentctl(t, "thread", "show", thread).want(t, 1, "there is no thread")
}

type loadReport struct {
	Accepted    int            `json:"accepted"`
	Succeeded   int            `json:"succeeded"`
	Failed      int            `json:"failed"`
	UnderWay    int            `json:"under_way"`
	Interrupted bool           `json:"interrupted"`
	Reasons     map[string]int `json:"reasons"`
}

func TestLoad(t *testing.T) {
	t.Parallel()
	agentctl(t, "load", "-n", "30", "-c", "6").want(t, 0, "succeeded   30", "tasks/s", "p99", "end to end")
	r := agentctl(t, "--json", "load", "-n", "12", "-c", "4", "--task", "update_ticket", "--body", `{"ticket_id":"`+name("TK")+`","status":"closed","expected_version":7}`)
	r.want(t, 1)
	report := decode[loadReport](t, r)
	if report.Failed != 12 || len(report.Reasons) != 1 {
		t.Errorf("report is %+v, want all failed for one reason", report)
	}
}

// Ctrl-C ends a run early: the report tells what was done so far.
func TestLoadIsInterrupted(t *testing.T) {
	t.Parallel()
	thread := name("th")
	c := calling(t.Context(), "--json", "load", "-n", "100000", "-c", "4", "--thread", thread)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for try := 0; agentctl(t, "result", thread+"-20").code != 0; try++ { // each try takes a while
		if try == 1000 {
			t.Fatal("waited in vain for the 21st task")
		}
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its exit code is looked at
	r := run{c.ProcessState.ExitCode(), out.String(), problems.String()}
	r.want(t, 130, "interrupted")
	report := decode[loadReport](t, r)
	if !report.Interrupted || report.Succeeded == 0 || report.Accepted < report.Succeeded || report.Accepted != report.Succeeded+report.Failed+report.UnderWay {
		t.Errorf("report is %+v, want what was done until then", report)
	}
}

func TestCompletionKnowsTheCommands(t *testing.T) {
	t.Parallel()
	agentctl(t, "completion", "bash").want(t, 0, "__start_agentctl")
	r := agentctl(t, "__complete", "thread", "")
	if r.code != 0 || !strings.Contains(r.out, "delete") {
		t.Errorf("got %+v, want the commands below thread", r)
	}
}
