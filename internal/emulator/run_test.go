package emulator_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/emulator"
	"agentworker/internal/emulator/dynamodb"
	"agentworker/internal/emulator/sqs"
	"agentworker/internal/topology"
)

// With a data directory everything is there again after a restart; what was on the queue is worked through then.
func TestStateSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := func(c *emulator.Config) { c.DataDir = dir }
	r := start(t, keep)
	a := r.submit(t, "/agent/query", `{"thread_id":"th-1","question":"What is idempotency?"}`)
	before := r.ends(t, a.TaskID)
	later := r.submit(t, "/agent/query", `{"thread_id":"th-1","question":"What is a visibility timeout?","delay_seconds":2}`)
	r.stop(t)

	r = start(t, keep)
	if after := r.ends(t, a.TaskID); string(after.Result) != string(before.Result) {
		t.Errorf("result after the restart is %s, want %s", after.Result, before.Result)
	}
	if v := r.ends(t, later.TaskID); v.Status != "succeeded" {
		t.Errorf("the task that was waiting is %s (%+v), want it to have succeeded", v.Status, v.Error)
	}
}

// With the SDK's own variables set, another table and another queue service take the place of ours.
func TestOtherServicesInThePlaceOfOurs(t *testing.T) {
	t.Parallel()
	binary, err := dynamodb.Install(t.Context(), filepath.Join(rootDir, ".tools"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := dynamodb.Start(t.Context(), dynamodb.Options{Binary: binary, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	queues, err := sqs.Open(sqs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(queues)
	t.Cleanup(func() { _ = queues.Close(); front.Close() })

	r := start(t, func(c *emulator.Config) { c.DynamoDBEndpoint, c.SQSEndpoint = table.Endpoint(), front.URL })
	a := r.submit(t, "/agent/query", `{"thread_id":"th-1","question":"What is a dead-letter queue?"}`)
	if v := r.ends(t, a.TaskID); v.Status != "succeeded" {
		t.Errorf("the task is %s (%+v), want it to have succeeded", v.Status, v.Error)
	}
	if _, _, _, ok := queues.Depth("agent-tasks"); !ok {
		t.Error("the other queue service has no tasks queue")
	}
	if _, err := r.sqs.ListQueues(t.Context(), &awssqs.ListQueuesInput{}); err == nil {
		t.Error("our own endpoint serves queues as well")
	}
}

// A client that waits for a task, or that never sends the rest of its body, may be there for much longer than the chain has
// to stop in: nothing else may be killed for it.
func TestClientsDoNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	r := start(t)
	var task accepted
	if status := r.call(t, "POST", "/agent/query", `{"question":"Later?","delay_seconds":900}`, &task); status != http.StatusAccepted {
		t.Fatalf("submit: got %d, want 202", status)
	}
	address := strings.TrimPrefix(r.APIURL(), "http://")
	dial := func(request string) net.Conn {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	dial("GET /agent/tasks/" + task.TaskID + "?wait=25 HTTP/1.1\nHost: " + address + "\n\n")
	stalled := dial("POST /agent/query HTTP/1.1\nHost: " + address + "\nContent-Length: 100\nExpect: 100-continue\n\n")
	if line, err := bufio.NewReader(stalled).ReadString('\n'); !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v, want 100 Continue: the request is under way", line, err)
	}
	r.stop(t)
}

func TestAPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	r := start(t)
	var port int
	if _, err := fmt.Sscanf(r.APIURL(), "http://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	_, err := emulator.Start(t.Context(), emulator.Config{Stack: topology.Default(), Port: port, Workers: 1, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("PORT %d", port)) || !strings.Contains(err.Error(), "set PORT to a free port") {
		t.Errorf("error is %v, want one that names PORT and the way out", err)
	}
	if errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestADataDirInUseIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := func(c *emulator.Config) { c.DataDir = dir }
	start(t, keep)
	c := emulator.Config{Stack: topology.Default(), Workers: 1, ToolsDir: filepath.Join(rootDir, ".tools"), Logger: slog.New(slog.DiscardHandler)}
	keep(&c)
	_, err := emulator.Start(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "another process uses it") || !strings.Contains(err.Error(), "set DATA_DIR to a folder") {
		t.Errorf("error is %v, want one that names DATA_DIR and the way out", err)
	}
}
