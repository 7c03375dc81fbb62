package mapping_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
	local "agentworker/internal/emulator/sqs"
)

// The whole way, with real time: the local SQS over HTTP, a real Lambda binary, a dead-letter queue.
func TestChain(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "bootstrap")
	if out, err := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", binary, "./testdata/worker").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	client := localSQS(t)
	for _, suffix := range []string{"", ".fifo"} {
		t.Run("queue"+suffix, func(t *testing.T) {
			t.Parallel()
			dead, deadARN := createQueue(t, client, "dead"+suffix, "")
			url, arn := createQueue(t, client, "tasks"+suffix, deadARN)
			f := lambda.New(lambda.Config{Name: "worker" + suffix, Binary: binary, Timeout: 20 * time.Second, Concurrency: 3})
			t.Cleanup(func() {
				if err := f.Close(context.Background()); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			watched := spy{client, make(chan string, 1)}
			_, l, stop := run(t, watched, f, func(c *mapping.Config) {
				c.QueueURL, c.QueueARN, c.FunctionTimeout, c.MaximumConcurrency = url, arn, 20*time.Second, 3
			})
			const messages = 30
			for i := range messages {
				body := strconv.Itoa(i)
				if i == 7 {
					body = "fail"
				}
				in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
					"task_type": {DataType: aws.String("String"), StringValue: aws.String("test")},
				}}
				if suffix != "" {
					in.MessageGroupId, in.MessageDeduplicationId = aws.String(fmt.Sprint("g", i%4)), aws.String(fmt.Sprint(i))
				}
				if _, err := client.SendMessage(t.Context(), in); err != nil {
					t.Fatal(err)
				}
			}
			// Half a minute of visibility is not waited for.
			handle := <-watched.failing
			eventually(t, "the failed record is reported", func() bool { return strings.Contains(l.outcomes(), "partial") })
			if _, err := client.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: &handle}); err != nil {
				t.Fatal(err)
			}
			var found *sqs.ReceiveMessageOutput
			for found == nil || len(found.Messages) == 0 {
				var err error
				found, err = client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &dead, WaitTimeSeconds: 20})
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := aws.ToString(found.Messages[0].Body); got != "fail" {
				t.Errorf("dead letter: got %q, want fail", got)
			}
			eventually(t, "the queue is empty", func() bool {
				out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
				return err == nil && out.Attributes["ApproximateNumberOfMessages"] == "0" && out.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
			})
			stop()
			l.mu.Lock()
			defer l.mu.Unlock()
			deleted, failed := 0, 0
			for _, e := range l.events {
				deleted += e.Deleted
				failed += len(e.Failed)
				if len(e.DeleteFailed) > 0 || e.Err != nil {
					t.Errorf("event: %+v", e)
				}
			}
			if deleted != messages-1 || failed != 1 {
				t.Errorf("got %d deleted, %d failures, want %d and 1", deleted, failed, messages-1)
			}
		})
	}
}

// spy tells the handle of the message that is going to fail.
type spy struct {
	mapping.SQSAPI
	failing chan string
}

func (s spy) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, options ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out, err := s.SQSAPI.ReceiveMessage(ctx, in, options...)
	if err == nil {
		for _, msg := range out.Messages {
			if *msg.Body == "fail" {
				s.failing <- *msg.ReceiptHandle
			}
		}
	}
	return out, err
}

func localSQS(t *testing.T) *sqs.Client {
	t.Helper()
	server, err := local.Open(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(server)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		front.Close()
	})
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(front.URL), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
}

func createQueue(t *testing.T, client *sqs.Client, name, deadARN string) (url, arn string) {
	t.Helper()
	attributes := map[string]string{}
	if filepath.Ext(name) == ".fifo" {
		attributes["FifoQueue"] = "true"
	}
	if deadARN != "" {
		attributes["VisibilityTimeout"] = "30"
		attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"1"}`, deadARN)
	}
	created, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: created.QueueUrl, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	if err != nil {
		t.Fatal(err)
	}
	return *created.QueueUrl, out.Attributes["QueueArn"]
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute in vain until %s", what)
		}
	}
}
