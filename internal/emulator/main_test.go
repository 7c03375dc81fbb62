package emulator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"agentworker/internal/emulator"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/topology"
)

// binDir holds the three functions, built once for all tests.
var binDir, rootDir string

func TestMain(m *testing.M) { goleak.VerifyTestMain(built{m}) }

type built struct{ m *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "functions-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binDir = dir
	_, file, _, _ := runtime.Caller(0)
	rootDir = filepath.Join(filepath.Dir(file), "..", "..")
	for _, name := range []string{"worker", "submit", "dlqalarm"} {
		build := exec.CommandContext(context.Background(), "go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, name, "bootstrap"), "./functions/"+name)
		build.Dir, build.Env = rootDir, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	return b.m.Run()
}

// running is a chain under test.
type running struct {
	*emulator.Chain
	sqs *awssqs.Client

	mu            sync.Mutex
	notifications []sns.Notification
	notified      chan struct{}
	stopped       bool
}

func start(t *testing.T, change ...func(*emulator.Config)) *running {
	t.Helper()
	r := &running{notified: make(chan struct{}, 100)}
	c := emulator.Config{
		Stack: topology.Default(), Workers: 2, BinDir: binDir, ToolsDir: filepath.Join(rootDir, ".tools"),
		Logger: slog.New(slog.DiscardHandler),
		Notify: func(n sns.Notification) {
			r.mu.Lock()
			r.notifications = append(r.notifications, n)
			r.mu.Unlock()
			r.notified <- struct{}{}
		},
	}
	for _, fn := range change {
		fn(&c)
	}
	var err error
	if r.Chain, err = emulator.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(t) })
	r.sqs = awssqs.New(awssqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(r.AWSURL()), Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	if r.stopped {
		return
	}
	r.stopped = true
	if err := r.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// call makes a request, reads the answer into out unless it is a problem, and gives the status.
func (r *running) call(t *testing.T, method, path, body string, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.APIURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil && res.StatusCode < 300 {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s %s gave %d and %s: %v", method, path, res.StatusCode, text, err)
		}
	}
	return res.StatusCode
}

type accepted struct {
	TaskID   string `json:"task_id"`
	ThreadID string `json:"thread_id"`
}

type taskView struct {
	Status   string `json:"status"`
	TraceID  string `json:"trace_id"`
	Attempts int    `json:"attempts"`
	Error    *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Result jsontext.Value `json:"result"`
}

func (r *running) submit(t *testing.T, path, body string) accepted {
	t.Helper()
	var a accepted
	if status := r.call(t, http.MethodPost, path, body, &a); status != http.StatusAccepted {
		t.Fatalf("POST %s gave %d, want 202", path, status)
	}
	return a
}

// ends waits until a task has ended. The chain's processes are foreign to the test: it can only ask them.
func (r *running) ends(t *testing.T, id string) taskView {
	t.Helper()
	var v taskView
	r.eventually(t, "the end of task "+id, func() bool {
		return r.call(t, http.MethodGet, "/agent/tasks/"+id, "", &v) == http.StatusOK && (v.Status == "succeeded" || v.Status == "failed")
	})
	return v
}

func (r *running) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ask := time.NewTicker(20 * time.Millisecond)
	defer ask.Stop()
	for !ok() {
		select {
		case <-ask.C:
		case err := <-r.Failed():
			t.Fatalf("the chain ended: %v", err)
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (r *running) depth(t *testing.T, name string) int {
	t.Helper()
	out, err := r.sqs.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: out.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := fmt.Sscan(got.Attributes["ApproximateNumberOfMessages"], &n); err != nil {
		t.Fatal(err)
	}
	return n
}
