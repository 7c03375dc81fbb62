package emulator_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
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
	awscloudformation "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"agentworker/internal/emulator"
	"agentworker/internal/emulator/dynamodb"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/emulator/sqs"
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

// The main job: a question with its answer, a conversation, and a ticket through three statuses.
func TestTheWholeChain(t *testing.T) {
	t.Parallel()
	r := start(t)
	a := r.submit(t, "/agent/query", `{"thread_id":"th-1","question":"What is a dead-letter queue?"}`)
	v := r.ends(t, a.TaskID)
	var answer struct {
		Answer    string `json:"answer"`
		Citations []struct {
			Document string `json:"document"`
		} `json:"citations"`
	}
	if err := json.Unmarshal(v.Result, &answer); err != nil || v.Status != "succeeded" || len(answer.Citations) == 0 || !strings.Contains(answer.Answer, "dead-letter") {
		t.Errorf("the task is %s with result %s (%v), want an answer with citations", v.Status, v.Result, err)
	}
	var result jsontext.Value
	if status := r.call(t, http.MethodGet, "/agent/result/th-1", "", &result); status != http.StatusOK || string(result) != string(v.Result) {
		t.Errorf("the thread's result is %d %s, want the task's", status, result)
	}
	for _, status := range []string{"open", "in_progress", "resolved"} {
		r.submit(t, "/agent/tickets/TK-1", fmt.Sprintf(`{"status":%q}`, status))
	}
	r.eventually(t, "the ticket to be resolved", func() bool {
		var ticket struct {
			Status  string `json:"status"`
			Version int    `json:"version"`
		}
		return r.call(t, http.MethodGet, "/agent/tickets/TK-1", "", &ticket) == http.StatusOK && ticket.Status == "resolved" && ticket.Version == 3
	})
	var history struct {
		Tasks []struct {
			Status   string           `json:"status"`
			Attempts []jsontext.Value `json:"attempts"`
		} `json:"tasks"`
	}
	r.call(t, http.MethodGet, "/agent/threads/ticket-TK-1/history", "", &history)
	if len(history.Tasks) != 3 || history.Tasks[2].Status != "succeeded" || len(history.Tasks[0].Attempts) != 1 {
		t.Errorf("the ticket's history is %+v, want three tasks of one attempt each", history)
	}
}

// A poison message ends in the dead-letter queue; its reason stands in the task's status and in the alarm's notification,
// which comes once; looking deletes nothing.
//
// Case: DLQ and status
// Case: DLQ alarm silent
func TestPoisonIsExplained(t *testing.T) {
	t.Parallel()
	r := start(t)
	poison := r.submit(t, "/agent/tickets/TK-9", `{"status":"resolved"}`)
	r.ends(t, poison.TaskID)
	poison = r.submit(t, "/agent/tickets/TK-9", `{"status":"open"}`)
	v := r.ends(t, poison.TaskID)
	if v.Status != "failed" || v.Error == nil || v.Error.Code != "ILLEGAL_TRANSITION" {
		t.Fatalf("the poison task is %+v", v)
	}
	select {
	case <-r.notified:
	case <-time.After(60 * time.Second):
		t.Fatal("no notification")
	}
	r.mu.Lock()
	n := r.notifications[0]
	r.mu.Unlock()
	for _, want := range []string{v.Error.Code, v.Error.Message, poison.TaskID, "start-message-move-task"} {
		if !strings.Contains(n.Subject+n.Message, want) {
			t.Errorf("the notification does not hold %q:\n%s\n%s", want, n.Subject, n.Message)
		}
	}
	r.eventually(t, "the dead letter to be visible again", func() bool { return r.depth(t, "agent-tasks-ordered-dlq.fifo") == 1 })
	var kept []struct{ Subject string }
	res, err := http.Get(r.AWSURL() + "/_local/notifications") //nolint:noctx // a plain GET, as a person would
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.UnmarshalRead(res.Body, &kept); err != nil || len(kept) == 0 || kept[0].Subject != n.Subject {
		t.Errorf("kept notifications are %+v (%v)", kept, err)
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

// Messages that other programs put on the queues, without a task id, work too.
func TestOtherProducers(t *testing.T) {
	t.Parallel()
	r := start(t)
	send := func(queue, body, group string) {
		t.Helper()
		url, err := r.sqs.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &queue})
		if err != nil {
			t.Fatal(err)
		}
		in := &awssqs.SendMessageInput{QueueUrl: url.QueueUrl, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
			"task_type": {DataType: aws.String("String"), StringValue: aws.String("rag_query")},
			"priority":  {DataType: aws.String("Number"), StringValue: aws.String("1")},
		}}
		if group != "" {
			in.MessageGroupId = &group
		}
		if _, err := r.sqs.SendMessage(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	send("agent-tasks", `{"task":"rag_query","thread_id":"th-abc123","question":"什么是 LangGraph？"}`, "")
	send("agent-tasks-ordered.fifo", `{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`, "ticket-TK-1001")
	send("agent-tasks", `{"task":"rag_query","question":"什么是 LangGraph？"}`, "")
	r.eventually(t, "the answer", func() bool {
		var result struct {
			Citations []jsontext.Value `json:"citations"`
		}
		return r.call(t, http.MethodGet, "/agent/result/th-abc123", "", &result) == http.StatusOK && len(result.Citations) > 0
	})
	r.eventually(t, "the ticket", func() bool {
		var ticket struct {
			Status string `json:"status"`
		}
		return r.call(t, http.MethodGet, "/agent/tickets/TK-1001", "", &ticket) == http.StatusOK && ticket.Status == "closed"
	})
}

// A task that came in an SNS notification is the same task for the worker and for dlqalarm: both must know the topic.
func TestATaskFromATopicHasOneRecord(t *testing.T) {
	t.Parallel()
	const topic = "arn:aws:sns:us-east-1:000000000000:theirs"
	r := start(t, func(c *emulator.Config) { c.AllowedTopics = []string{topic} })
	name := "agent-tasks"
	url, err := r.sqs.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"Type":"Notification","MessageId":"22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324","TopicArn":%q,`+
		`"Timestamp":"2026-11-29T12:00:00.000Z","Message":"{\"task\":\"update_ticket\",\"ticket_id\":\"TK-7\",\"status\":\"open\",\"expected_version\":5}"}`, topic)
	if _, err := r.sqs.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: url.QueueUrl, MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.notified:
	case <-time.After(60 * time.Second):
		t.Fatal("no notification")
	}
	records := func(thread string) (n int) {
		var history struct {
			Tasks []jsontext.Value `json:"tasks"`
		}
		r.call(t, http.MethodGet, "/agent/threads/"+thread+"/history", "", &history)
		return len(history.Tasks)
	}
	if n := records("ticket-TK-7") + records("unparsed"); n != 1 {
		t.Errorf("the task has %d records, want one", n)
	}
}

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

// The chain is a stack to CloudFormation's clients: with outputs, and with resources by the ids that other services know.
func TestTheChainIsAStack(t *testing.T) {
	t.Parallel()
	r := start(t)
	client := awscloudformation.New(awscloudformation.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(r.AWSURL()), Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
	name := topology.StackName(topology.LocalStage)
	out, err := client.DescribeStacks(t.Context(), &awscloudformation.DescribeStacksInput{StackName: &name})
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{}
	for _, o := range out.Stacks[0].Outputs {
		outputs[*o.OutputKey] = *o.OutputValue
	}
	if got := outputs[topology.OutputAPIURL]; got != r.APIURL() {
		t.Errorf("ApiUrl is %s, want %s", got, r.APIURL())
	}
	resources, err := client.ListStackResources(t.Context(), &awscloudformation.ListStackResourcesInput{StackName: &name})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, resource := range resources.StackResourceSummaries {
		kinds[*resource.ResourceType]++
		if *resource.ResourceType != "AWS::SQS::Queue" {
			continue
		}
		if _, err := r.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: resource.PhysicalResourceId}); err != nil {
			t.Errorf("%s is no queue: %v", *resource.PhysicalResourceId, err)
		}
	}
	want := map[string]int{
		"AWS::SQS::Queue": 4, "AWS::DynamoDB::Table": 1, "AWS::SNS::Topic": 1, "AWS::Lambda::Function": 3,
		"AWS::Lambda::EventSourceMapping": 2, "AWS::CloudWatch::Alarm": 2, "AWS::Events::Rule": 1,
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("the resources are %v, want %v", kinds, want)
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

// What no route takes never reaches the API: its description must not promise what the API itself would answer.
func TestTheDescriptionKnowsTheFrontDoor(t *testing.T) {
	t.Parallel()
	r := start(t)
	for path, method := range map[string]string{"/healthz": "HEAD", "/agent/query": "PUT", "/agent": "GET"} {
		if status := r.call(t, method, path, "", nil); status != http.StatusNotFound {
			t.Errorf("%s %s: got %d, want 404", method, path, status)
		}
	}
	var document struct {
		Info struct {
			Description string `json:"description"`
		} `json:"info"`
	}
	if status := r.call(t, "GET", "/openapi.json", "", &document); status != http.StatusOK {
		t.Fatalf("openapi.json: got %d", status)
	}
	if text := document.Info.Description; !strings.Contains(text, "HEAD among them (404)") || strings.Contains(text, "405") {
		t.Errorf("description: got %q, want 404 for what no route takes, HEAD among it", text)
	}
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
