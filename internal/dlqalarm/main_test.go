package dlqalarm_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/dlqalarm"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	emulator "agentworker/internal/emulator/sqs"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

const (
	queueName   = "agent-tasks-dlq"
	orderedName = "agent-tasks-ordered-dlq.fifo"
	topicARN    = "arn:aws:sns:us-east-1:000000000000:alerts"
)

// bench is a handler over a real table and a local SQS with both dead-letter queues.
type bench struct {
	*testing.T
	server       *emulator.Server
	sqs          *sqs.Client
	store        *checkpoint.Store
	storeAt      func(now time.Time) *checkpoint.Store
	topic        *topic
	logs         *output
	metrics      *output
	config       dlqalarm.Config
	url, ordered string
	source       string // feeds the worker
}

func start(t *testing.T) *bench {
	t.Helper()
	server, err := emulator.Open(emulator.Options{})
	if err != nil {
		t.Fatalf("open SQS: %v", err)
	}
	web := httptest.NewServer(server)
	transport := new(http.Transport)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		web.Close()
		if err := server.Close(); err != nil {
			t.Errorf("close SQS: %v", err)
		}
	})
	client := dynamodbtest.New(t)
	table := dynamodbtest.Table(t, client)
	storeAt := func(now time.Time) *checkpoint.Store {
		return checkpoint.New(client, table, checkpoint.Options{Now: func() time.Time { return now }})
	}
	b := &bench{
		T: t, server: server, topic: new(topic), logs: new(output), metrics: new(output),
		store: checkpoint.New(client, table, checkpoint.Options{}), storeAt: storeAt,
		sqs: sqs.New(sqs.Options{
			Region: "us-east-1", BaseEndpoint: &web.URL, HTTPClient: &http.Client{Transport: transport},
			Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		}),
	}
	b.url = b.create(queueName, nil)
	b.ordered = b.create(orderedName, map[string]string{"FifoQueue": "true"})
	b.source = b.create("agent-tasks", map[string]string{"MessageRetentionPeriod": "604800", "VisibilityTimeout": "360"})
	b.config = dlqalarm.Config{
		Sources: []string{b.source},
		Queues:  []dlqalarm.Queue{{URL: b.url}, {URL: b.ordered}},
		Tasks:   registry(t), Store: b.store, SQS: impatient{b.sqs}, Topic: b.topic, TopicARN: topicARN,
		Metrics: telemetry.NewMetrics("agentworker", b.metrics),
		Logger:  slog.New(slog.NewJSONHandler(b.logs, nil)),
	}
	return b
}

func registry(t testing.TB) *task.Registry {
	t.Helper()
	type input struct {
		Text string `json:"text"`
	}
	run := func(context.Context, task.Run, input) (string, error) { return "", nil }
	check := func(in input) task.FieldErrors {
		switch in.Text {
		case "":
			return task.FieldErrors{{Field: "text", Problem: "must not be empty"}}
		case "panic":
			panic("a check that panics")
		}
		return nil
	}
	r, err := task.NewRegistry(
		task.Definition[input, string]{Name: "echo", Check: check, Run: run}.Type(),
		task.Definition[input, string]{Name: "shout", Check: check, Run: run}.Type())
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	return r
}

func (b *bench) create(name string, attributes map[string]string) string {
	b.Helper()
	out, err := b.sqs.CreateQueue(b.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		b.Fatalf("create queue %s: %v", name, err)
	}
	return aws.ToString(out.QueueUrl)
}

// put sends a body to a queue and gives the message's id. group is for a FIFO queue.
func (b *bench) put(url, body, group string) string {
	b.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}
	if group != "" {
		in.MessageGroupId = &group
		in.MessageDeduplicationId = aws.String(fmt.Sprintf("%x", []byte(task.NewID("d", time.Now()).ULID())))
	}
	out, err := b.sqs.SendMessage(b.Context(), in)
	if err != nil {
		b.Fatalf("send to %s: %v", url, err)
	}
	return aws.ToString(out.MessageId)
}

// submit records a task and puts its message straight into the dead-letter queue.
func (b *bench) submit(taskType, thread string) (task.Message, string) {
	b.Helper()
	m, err := b.config.Tasks.New(taskType, members(b, fmt.Sprintf(`{"text":"hello","thread_id":%q}`, thread)), time.Now())
	if err != nil {
		b.Fatalf("new task: %v", err)
	}
	if _, _, err := b.store.Create(b.Context(), m, time.Now()); err != nil {
		b.Fatalf("create task: %v", err)
	}
	body, err := m.Body()
	if err != nil {
		b.Fatalf("body: %v", err)
	}
	return m, b.put(b.url, string(body), "")
}

func members(t testing.TB, object string) []task.Member {
	t.Helper()
	list, err := task.ParseObject([]byte(object))
	if err != nil {
		t.Fatalf("parse %s: %v", object, err)
	}
	return list
}

// claim is a worker's claim of an echo task that lasts for the given time.
func (b *bench) claim(id task.ID, messageID string, lease time.Duration) checkpoint.Record {
	b.Helper()
	rec, err := b.store.Claim(b.Context(), checkpoint.ClaimRequest{
		ID: id, Task: "echo", MessageID: messageID, SentAt: time.Now(),
		Owner: string(task.NewID("owner", time.Now())), Until: time.Now().Add(lease),
	})
	if err != nil {
		b.Fatalf("claim %s: %v", id, err)
	}
	return rec
}

func (b *bench) fail(rec checkpoint.Record, f task.Failure) {
	b.Helper()
	if err := b.store.End(b.Context(), rec, checkpoint.End{Status: checkpoint.Failed, Failure: f}); err != nil {
		b.Fatalf("end attempt of %s: %v", rec.TaskID, err)
	}
}

func (b *bench) record(id task.ID) checkpoint.Record {
	b.Helper()
	rec, err := b.store.Record(b.Context(), id)
	if err != nil {
		b.Fatalf("record of %s: %v", id, err)
	}
	return rec
}

// handle calls the handler once and wants no error.
func (b *bench) handle(payload string) dlqalarm.Summary {
	b.Helper()
	s, err := dlqalarm.New(b.config).Handle(b.Context(), []byte(payload))
	if err != nil {
		b.Fatalf("Handle: %v", err)
	}
	return s
}

// wantVisible checks that nothing was deleted and nothing is hidden.
func (b *bench) wantVisible(name string, want int) {
	b.Helper()
	visible, hidden, _, _ := b.server.Depth(name)
	if visible != want || hidden != 0 {
		b.Errorf("%s after the look: got %d visible and %d hidden messages, want %d and 0", name, visible, hidden, want)
	}
}

func (b *bench) wantPublished(want int) {
	b.Helper()
	if got := len(b.topic.sent()); got != want {
		b.Fatalf("notifications: got %d, want %d: %q", got, want, b.topic.sent())
	}
}

// alarm is the event of the alarm on a queue.
func alarm(name, state, previous, timestamp string) string {
	const form = `{"source":"aws.cloudwatch","alarmArn":"arn:aws:cloudwatch:us-east-1:000000000000:alarm:%[1]s-depth",
		"accountId":"000000000000","time":"%[4]s","region":"us-east-1","alarmData":{"alarmName":"%[1]s-depth",
		"state":{"value":"%[2]s","reason":"Threshold Crossed","timestamp":"%[4]s"},
		"previousState":{"value":"%[3]s","reason":"","timestamp":"%[4]s"},
		"configuration":{"metrics":[{"id":"m1","metricStat":{"metric":{"namespace":"AWS/SQS",
		"name":"ApproximateNumberOfMessagesVisible","dimensions":{"QueueName":"%[1]s"}},"period":60,"stat":"Maximum"},
		"returnData":true}]}}}`
	return fmt.Sprintf(form, name, state, previous, timestamp)
}

const (
	sweep  = `{"version":"0","detail-type":"Scheduled Event","source":"aws.events","detail":{}}`
	moment = "2026-02-17T11:53:08.431+0000"
	later  = "2026-02-17T12:53:08.431+0000"
)

// topic keeps what is published.
type topic struct {
	mu   sync.Mutex
	list []*sns.PublishInput
	err  error
}

func (p *topic) Publish(_ context.Context, in *sns.PublishInput, _ ...func(*sns.Options)) (*sns.PublishOutput, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.list = append(p.list, in)
	return &sns.PublishOutput{MessageId: aws.String(fmt.Sprint("note-", len(p.list)))}, nil
}

func (p *topic) breakWith(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// sent are the subjects.
func (p *topic) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for _, in := range p.list {
		list = append(list, aws.ToString(in.Subject))
	}
	return list
}

func (p *topic) last() (subject, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return "", ""
	}
	in := p.list[len(p.list)-1]
	return aws.ToString(in.Subject), aws.ToString(in.Message)
}

// output is a buffer for several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// counts is a group without what differs between runs.
func counts(groups []dlq.Group) []string {
	list := []string{}
	for _, g := range groups {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%d %s %s", g.Count, g.Code, g.Task)))
	}
	return list
}

func (b *bench) receiveOne(url string) types.Message {
	b.Helper()
	out, err := b.sqs.ReceiveMessage(b.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
	if err != nil || len(out.Messages) != 1 {
		b.Fatalf("receive: got %v, %v, want one message", out, err)
	}
	return out.Messages[0]
}

// peek receives up to ten messages and makes them visible again at once.
func (b *bench) peek(url string) []types.Message {
	b.Helper()
	out, err := b.sqs.ReceiveMessage(b.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: 10,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		b.Fatalf("peek: %v", err)
	}
	for _, m := range out.Messages {
		_, err := b.sqs.ChangeMessageVisibility(b.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle})
		if err != nil {
			b.Fatalf("peek: %v", err)
		}
	}
	return out.Messages
}
