package emulator_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awscloudformation "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/emulator"
	"agentworker/internal/topology"
)

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
