package sqs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/emulator/sqs"
)

func TestCreateQueueIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.queue("tasks", "VisibilityTimeout", "60")
	for name, attributes := range map[string][]string{
		"same":          {"VisibilityTimeout", "60"},
		"none given":    nil,
		"default given": {"DelaySeconds", "0"},
	} {
		if again := w.queue("tasks", attributes...); again != first {
			t.Errorf("%s: URL = %s, want %s", name, again, first)
		}
	}
	_, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{
		QueueName: aws.String("tasks"), Attributes: map[string]string{"VisibilityTimeout": "61"},
	})
	wantError[*types.QueueNameExists](t, err)
}

func TestCreateQueueRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("standard")
	w.fifo("ordered.fifo")
	w.queue("closed", "RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
	w.queue("chosen", "RedriveAllowPolicy", `{"redrivePermission":"byQueue","sourceQueueArns":["`+arn("friend")+`"]}`)
	w.queue("friend", "RedrivePolicy", redrive("chosen", 3))

	for name, c := range map[string]struct {
		queue      string
		attributes []string
		code       string
	}{
		"name with a space":       {"a b", nil, "InvalidParameterValue"},
		"name too long":           {strings.Repeat("x", 81), nil, "InvalidParameterValue"},
		"fifo without suffix":     {"q", []string{"FifoQueue", "true"}, "InvalidParameterValue"},
		"suffix without fifo":     {"q.fifo", nil, "InvalidParameterValue"},
		"fifo false":              {"q", []string{"FifoQueue", "false"}, "InvalidAttributeName"},
		"fifo attribute":          {"q", []string{"ContentBasedDeduplication", "true"}, "InvalidAttributeName"},
		"unknown attribute":       {"q", []string{"Colour", "red"}, "InvalidAttributeName"},
		"read-only attribute":     {"q", []string{"QueueArn", "x"}, "InvalidAttributeName"},
		"visibility over 12 h":    {"q", []string{"VisibilityTimeout", "43201"}, "InvalidAttributeValue"},
		"delay over 15 min":       {"q", []string{"DelaySeconds", "901"}, "InvalidAttributeValue"},
		"retention under 60 s":    {"q", []string{"MessageRetentionPeriod", "59"}, "InvalidAttributeValue"},
		"size over 1 MiB":         {"q", []string{"MaximumMessageSize", "1048577"}, "InvalidAttributeValue"},
		"wait over 20 s":          {"q", []string{"ReceiveMessageWaitTimeSeconds", "21"}, "InvalidAttributeValue"},
		"not a number":            {"q", []string{"VisibilityTimeout", "soon"}, "InvalidAttributeValue"},
		"throughput, wrong scope": {"q.fifo", []string{"FifoQueue", "true", "FifoThroughputLimit", "perMessageGroupId"}, "InvalidAttributeValue"},
		"DLQ unknown":             {"q", []string{"RedrivePolicy", redrive("nowhere", 3)}, "InvalidParameterValue"},
		"DLQ of another type":     {"q", []string{"RedrivePolicy", redrive("ordered.fifo", 3)}, "InvalidParameterValue"},
		"DLQ of another type, fifo": {
			"q.fifo",
			[]string{"FifoQueue", "true", "RedrivePolicy", redrive("standard", 3)},
			"InvalidParameterValue",
		},
		"DLQ denies all":          {"q", []string{"RedrivePolicy", redrive("closed", 3)}, "InvalidParameterValue"},
		"DLQ allows others":       {"q", []string{"RedrivePolicy", redrive("chosen", 3)}, "InvalidParameterValue"},
		"DLQ itself":              {"standard", []string{"RedrivePolicy", redrive("standard", 3)}, "InvalidParameterValue"},
		"no receives":             {"q", []string{"RedrivePolicy", redrive("standard", 0)}, "InvalidParameterValue"},
		"too many receives":       {"q", []string{"RedrivePolicy", redrive("standard", 1001)}, "InvalidParameterValue"},
		"policy without target":   {"q", []string{"RedrivePolicy", `{"maxReceiveCount":3}`}, "InvalidParameterValue"},
		"policy not JSON":         {"q", []string{"RedrivePolicy", `three`}, "InvalidParameterValue"},
		"unknown permission":      {"q", []string{"RedriveAllowPolicy", `{"redrivePermission":"some"}`}, "InvalidParameterValue"},
		"byQueue without sources": {"q", []string{"RedriveAllowPolicy", `{"redrivePermission":"byQueue"}`}, "InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &c.queue, Attributes: pairs(c.attributes)})
			wantCode(t, err, c.code)
		})
	}
}

func TestQueueAttributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	url := w.queue("tasks")
	created := fmt.Sprint(w.clock.Now().Unix())
	want := map[string]string{
		"QueueArn": arn("tasks"), "CreatedTimestamp": created, "LastModifiedTimestamp": created,
		"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "0", "ApproximateNumberOfMessagesNotVisible": "0",
		"VisibilityTimeout": "30", "DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600",
		"ReceiveMessageWaitTimeSeconds": "0", "SqsManagedSseEnabled": "true",
	}
	if got := w.attributes(url); !maps.Equal(got, want) {
		t.Errorf("attributes of a new queue = %v, want %v", got, want)
	}

	w.clock.Advance(time.Minute)
	changes := map[string]string{
		"VisibilityTimeout": "90", "DelaySeconds": "5", "MaximumMessageSize": "2048", "MessageRetentionPeriod": "600",
		"ReceiveMessageWaitTimeSeconds": "7", "KmsMasterKeyId": "alias/mine", "KmsDataKeyReusePeriodSeconds": "600",
		"Policy": `{"Version":"2012-10-17","Statement":[]}`, "RedrivePolicy": redrive("dead", 5),
		"RedriveAllowPolicy": `{"redrivePermission":"allowAll"}`,
	}
	if err := w.set(url, flat(changes)...); err != nil {
		t.Fatal(err)
	}
	maps.Copy(want, changes)
	want["SqsManagedSseEnabled"] = "false" // a key of one's own takes its place
	want["LastModifiedTimestamp"] = fmt.Sprint(w.clock.Now().Unix())
	if got := w.attributes(url); !maps.Equal(got, want) {
		t.Errorf("attributes after the change = %v, want %v", got, want)
	}

	out, err := w.client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"DelaySeconds", "ContentBasedDeduplication"},
	})
	if got := must(t, out, err).Attributes; !maps.Equal(got, map[string]string{"DelaySeconds": "5"}) {
		t.Errorf("selected attributes = %v, want only DelaySeconds", got)
	}
	_, err = w.client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"Colour"},
	})
	wantError[*types.InvalidAttributeName](t, err)

	// An empty value takes a setting back; refused changes change nothing.
	if err := w.set(url, "RedrivePolicy", "", "KmsMasterKeyId", "", "VisibilityTimeout", ""); err != nil {
		t.Fatal(err)
	}
	wantError[*types.InvalidAttributeValue](t, w.set(url, "DelaySeconds", "6", "VisibilityTimeout", "-1"))
	got := w.attributes(url)
	if got["RedrivePolicy"] != "" || got["KmsMasterKeyId"] != "" || got["VisibilityTimeout"] != "30" || got["DelaySeconds"] != "5" {
		t.Errorf("attributes after taking settings back = %v", got)
	}
}

func flat(m map[string]string) []string {
	var out []string
	for k, v := range m {
		out = append(out, k, v)
	}
	return out
}

func TestFIFOQueueAttributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.fifo("ordered.fifo", "DeduplicationScope", "messageGroup", "FifoThroughputLimit", "perMessageGroupId")
	got := w.attributes(url)
	for name, want := range map[string]string{
		"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "messageGroup",
		"FifoThroughputLimit": "perMessageGroupId",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	wantError[*types.InvalidAttributeValue](t, w.set(url, "FifoQueue", "false"))
	wantError[*types.InvalidAttributeName](t, w.set(w.queue("standard"), "FifoQueue", "true"))
}

func TestMaxReceiveCountMayBeText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	url := w.queue("tasks", "RedrivePolicy", `{"deadLetterTargetArn":"`+arn("dead")+`","maxReceiveCount":"5"}`)
	if got, want := w.attributes(url)["RedrivePolicy"], redrive("dead", 5); got != want {
		t.Errorf("RedrivePolicy = %s, want %s", got, want)
	}
}

func TestQueueURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	out, err := w.client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String("tasks")})
	if got := *must(t, out, err).QueueUrl; got != url {
		t.Errorf("URL = %s, want %s", got, url)
	}
	_, err = w.client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String("nothing")})
	wantError[*types.QueueDoesNotExist](t, err)
	wantCode(t, err, "AWS.SimpleQueueService.NonExistentQueue")

	other := openWorld(t, sqs.Options{BaseURL: "http://127.0.0.1:4566/", AccountID: "123456789012", Region: "eu-west-1"})
	if got, want := other.queue("tasks"), "http://127.0.0.1:4566/123456789012/tasks"; got != want {
		t.Errorf("URL = %s, want %s", got, want)
	}
	if got, want := other.attributes("x://y/123456789012/tasks")["QueueArn"], "arn:aws:sqs:eu-west-1:123456789012:tasks"; got != want {
		t.Errorf("ARN = %s, want %s", got, want)
	}
}

func TestListQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"b-2", "a", "b-1", "b-3"} {
		w.queue(name)
	}
	list := func(in awssqs.ListQueuesInput) (names []string, token *string) {
		t.Helper()
		out, err := w.client.ListQueues(t.Context(), &in)
		for _, url := range must(t, out, err).QueueUrls {
			names = append(names, url[strings.LastIndex(url, "/")+1:])
		}
		return names, out.NextToken
	}
	if got, _ := list(awssqs.ListQueuesInput{}); !slices.Equal(got, []string{"a", "b-1", "b-2", "b-3"}) {
		t.Errorf("all queues = %q", got)
	}
	first, token := list(awssqs.ListQueuesInput{QueueNamePrefix: aws.String("b-"), MaxResults: aws.Int32(2)})
	if !slices.Equal(first, []string{"b-1", "b-2"}) || token == nil {
		t.Fatalf("first page = %q with token %v, want b-1, b-2 and a token", first, token)
	}
	rest, token := list(awssqs.ListQueuesInput{QueueNamePrefix: aws.String("b-"), MaxResults: aws.Int32(2), NextToken: token})
	if !slices.Equal(rest, []string{"b-3"}) || token != nil {
		t.Errorf("second page = %q with token %v, want b-3 and none", rest, token)
	}
}

func TestListDeadLetterSourceQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.queue("dead")
	one, two := w.queue("one", "RedrivePolicy", redrive("dead", 2)), w.queue("two", "RedrivePolicy", redrive("dead", 2))
	w.queue("other")
	out, err := w.client.ListDeadLetterSourceQueues(t.Context(), &awssqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})
	if got := must(t, out, err).QueueUrls; !slices.Equal(got, []string{one, two}) {
		t.Errorf("sources = %q, want %q and %q", got, one, two)
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out, err := w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{
		QueueName: aws.String("tasks"), Tags: map[string]string{"team": "agents"},
	})
	url := must(t, out, err).QueueUrl
	_, err = w.client.TagQueue(t.Context(), &awssqs.TagQueueInput{QueueUrl: url, Tags: map[string]string{"stage": "dev", "team": "x"}})
	must(t, 0, err)
	_, err = w.client.UntagQueue(t.Context(), &awssqs.UntagQueueInput{QueueUrl: url, TagKeys: []string{"team"}})
	must(t, 0, err)
	tags, err := w.client.ListQueueTags(t.Context(), &awssqs.ListQueueTagsInput{QueueUrl: url})
	if got := must(t, tags, err).Tags; !maps.Equal(got, map[string]string{"stage": "dev"}) {
		t.Errorf("tags = %v, want only stage", got)
	}
}

func TestPurgeQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	purge := func() error {
		_, err := w.client.PurgeQueue(t.Context(), &awssqs.PurgeQueueInput{QueueUrl: &url})
		return err
	}
	w.send(url, "received")
	w.one(url)
	w.send(url, "waiting")
	w.send(url, "later", delayed(60))
	w.wantDepth(url, "tasks", 1, 1, 1)
	must(t, 0, purge())
	w.wantDepth(url, "tasks", 0, 0, 0)
	wantError[*types.PurgeQueueInProgress](t, purge())
	w.clock.Advance(time.Minute)
	must(t, 0, purge())
}

func TestDeletedQueueIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	w.send(url, "lost")
	m := w.one(url)
	_, err := w.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &url})
	must(t, 0, err)

	_, err = w.client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x")})
	wantError[*types.QueueDoesNotExist](t, err)
	_, err = w.receiveFrom(t.Context(), url, 1)
	wantError[*types.QueueDoesNotExist](t, err)
	wantError[*types.QueueDoesNotExist](t, w.delete(url, m))
	wantError[*types.QueueDoesNotExist](t, w.hide(url, m, 1))
	_, err = w.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &url})
	wantError[*types.QueueDoesNotExist](t, err)
	if _, _, _, ok := w.server.Depth("tasks"); ok {
		t.Error("Depth of a deleted queue is ok, want not")
	}

	_, err = w.client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("tasks")})
	wantError[*types.QueueDeletedRecently](t, err)
	w.clock.Advance(time.Minute)
	w.wantBodies(w.receive(w.queue("tasks"), 10))
	wantError[*types.ReceiptHandleIsInvalid](t, w.delete(url, m)) // of the old queue
}
