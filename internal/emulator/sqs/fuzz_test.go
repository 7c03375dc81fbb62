package sqs_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentworker/internal/emulator/sqs"
)

// FuzzProtocol sends any two requests to a server with queues and a message in flight: nothing that a client sends may
// look like a fault of the server, and every answer is JSON. "HANDLE" stands for the receipt handle of that message.
func FuzzProtocol(f *testing.F) {
	const queue, ordered, dead = `"QueueUrl":"http://x/000000000000/q"`, `"QueueUrl":"http://x/000000000000/q.fifo"`, `"SourceArn":"arn:aws:sqs:us-east-1:000000000000:dead"`
	for _, seed := range [][2]string{
		{"CreateQueue", `{"QueueName":"new","Attributes":{"VisibilityTimeout":"30","RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dead\",\"maxReceiveCount\":\"3\"}"},"tags":{"a":"b"}}`},
		{"GetQueueUrl", `{"QueueName":"q","QueueOwnerAWSAccountId":"000000000000"}`},
		{"ListQueues", `{"QueueNamePrefix":"q","MaxResults":1,"NextToken":"cQ=="}`},
		{"GetQueueAttributes", `{` + queue + `,"AttributeNames":["All"]}`},
		{"SetQueueAttributes", `{` + ordered + `,"Attributes":{"DelaySeconds":"1","DeduplicationScope":"messageGroup","FifoThroughputLimit":"perMessageGroupId"}}`},
		{"SetQueueAttributes", `{` + queue + `,"Attributes":{"RedriveAllowPolicy":"{\"redrivePermission\":\"byQueue\",\"sourceQueueArns\":[\"a\"]}","Policy":"{}","RedrivePolicy":""}}`},
		{"DeleteQueue", `{` + queue + `}`},
		{"PurgeQueue", `{` + queue + `}`},
		{"ListDeadLetterSourceQueues", `{"QueueUrl":"http://x/000000000000/dead","MaxResults":1000}`},
		{"TagQueue", `{` + queue + `,"Tags":{"":"x"}}`},
		{"UntagQueue", `{` + queue + `,"TagKeys":["x"]}`},
		{"ListQueueTags", `{` + queue + `}`},
		{"SendMessage", `{` + queue + `,"MessageBody":"b","DelaySeconds":900,"MessageAttributes":{"n":{"DataType":"Number","StringValue":"1e10"},"b":{"DataType":"Binary.x","BinaryValue":"AA=="}},"MessageSystemAttributes":{"AWSTraceHeader":{"DataType":"String","StringValue":"Root=1"}}}`},
		{"SendMessage", `{` + ordered + `,"MessageBody":"\ufffe","MessageGroupId":"g","MessageDeduplicationId":"d"}`},
		{"SendMessageBatch", `{` + ordered + `,"Entries":[{"Id":"1","MessageBody":"b","MessageGroupId":"g","MessageDeduplicationId":"d"},{"Id":"1","MessageBody":""}]}`},
		{"ReceiveMessage", `{` + queue + `,"MaxNumberOfMessages":10,"VisibilityTimeout":0,"WaitTimeSeconds":0,"AttributeNames":["All"],"MessageAttributeNames":["n.*"],"MessageSystemAttributeNames":["SentTimestamp"]}`},
		{"ReceiveMessage", `{` + ordered + `,"WaitTimeSeconds":20,"ReceiveRequestAttemptId":"x"}`},
		{"DeleteMessage", `{` + queue + `,"ReceiptHandle":"HANDLE"}`},
		{"DeleteMessageBatch", `{` + queue + `,"Entries":[{"Id":"a","ReceiptHandle":"HANDLE"},{"Id":"b","ReceiptHandle":"AAAA"}]}`},
		{"ChangeMessageVisibility", `{` + queue + `,"ReceiptHandle":"HANDLE","VisibilityTimeout":43200}`},
		{"ChangeMessageVisibilityBatch", `{` + queue + `,"Entries":[{"Id":"a","ReceiptHandle":"HANDLE","VisibilityTimeout":-1}]}`},
		{"StartMessageMoveTask", `{` + dead + `,"DestinationArn":"arn:aws:sqs:us-east-1:000000000000:q","MaxNumberOfMessagesPerSecond":500}`},
		{"CancelMessageMoveTask", `{"TaskHandle":"eyJ0YXNrSWQiOiJ4Iiwic291cmNlQXJuIjoiYXJuOmF3czpzcXM6OjpkZWFkIn0="}`},
		{"ListMessageMoveTasks", `{` + dead + `,"MaxResults":10}`},
		{"Fly", `[]`},
	} {
		f.Add(seed[0], seed[1], "ReceiveMessage", `{`+queue+`}`)
		f.Add("SetQueueAttributes", `{`+queue+`,"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dead\",\"maxReceiveCount\":1}"}}`, seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, action, body, action2, body2 string) {
		server, err := sqs.Open(sqs.Options{Clock: clockwork.NewFakeClock(), InFlightLimit: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
		call := func(action, body string) (answer map[string]any) {
			// A long poll ends with its client.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(body))
			r.Header["X-Amz-Target"] = []string{"AmazonSQS." + action}
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			if ctx.Err() != nil {
				return nil
			}
			if w.Code != 200 && (w.Code < 400 || w.Code >= 500) {
				t.Errorf("%s %s: status %d %s", action, body, w.Code, w.Body)
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Errorf("%s %s: answer %q is not JSON: %v", action, body, w.Body, err)
			}
			return answer
		}
		for _, name := range []string{"q", "dead"} {
			call("CreateQueue", `{"QueueName":"`+name+`"}`)
		}
		call("CreateQueue", `{"QueueName":"q.fifo","Attributes":{"FifoQueue":"true","ContentBasedDeduplication":"true"}}`)
		call("SendMessage", `{`+queue+`,"MessageBody":"first"}`)
		received, _ := call("ReceiveMessage", `{`+queue+`}`)["Messages"].([]any)
		if len(received) != 1 {
			t.Skip("too slow a machine to receive in time")
		}
		handle, _ := received[0].(map[string]any)["ReceiptHandle"].(string)
		call(action, strings.ReplaceAll(body, "HANDLE", handle))
		call(action2, strings.ReplaceAll(body2, "HANDLE", handle))
	})
}
