package mapping_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixed is a queue that hands out the same messages once.
type fixed struct {
	*queue
	messages chan []types.Message
}

func (f fixed) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if len(in.MessageAttributeNames) != 1 || in.MessageAttributeNames[0] != "All" || len(in.MessageSystemAttributeNames) != 1 || in.MessageSystemAttributeNames[0] != "All" {
		panic("attributes were not asked for")
	}
	select {
	case messages := <-f.messages:
		return &sqs.ReceiveMessageOutput{Messages: messages}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type raw func(payload []byte)

func (f raw) Invoke(_ context.Context, payload []byte) (lambda.Result, error) {
	f(payload)
	return lambda.Result{}, nil
}

func TestEventIsInLambdasShape(t *testing.T) {
	t.Parallel()
	f := fixed{newQueue(true, 60e9), make(chan []types.Message, 1)}
	f.messages <- []types.Message{
		{
			MessageId: aws.String("059f36b4-87a3-44ab-83d2-661975830a7d"), ReceiptHandle: aws.String("AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a…"),
			Body:      aws.String("{\"question\":\"<b> & \\\"7\\\" ≠ 日本 \u2028\",\"n\":9007199254740993}"),
			MD5OfBody: aws.String("e4e68fb7bd0e697a0ae8f1bb342846b3"), MD5OfMessageAttributes: aws.String("18e31cf8c7e82c76901a7d29b0bd589d"),
			Attributes: map[string]string{
				"ApproximateReceiveCount": "1", "SentTimestamp": "1573251510774", "SequenceNumber": "18849496460467696128",
				"MessageGroupId": "ticket-1", "SenderId": "AIDAIO23YVJENQZJOL4VO", "MessageDeduplicationId": "1",
				"ApproximateFirstReceiveTimestamp": "1573251510774", "AWSTraceHeader": "Root=1-5f1f0000-000000000000000000000001;Sampled=0",
			},
			MessageAttributes: map[string]types.MessageAttributeValue{
				"task_type": {DataType: aws.String("String"), StringValue: aws.String("rag_query")},
				"priority":  {DataType: aws.String("Number"), StringValue: aws.String("1")},
				"blob":      {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 254, 255}},
			},
		},
		{MessageId: aws.String("2e1424d4-f796-459a-8184-9c92662be6da"), ReceiptHandle: aws.String("AQEBzWwaftRI0KuVm4tP"), Body: aws.String("hello"), MD5OfBody: aws.String("5d41402abc4b2a76b9719d911017c592")},
	}
	got := make(chan []byte, 1)
	_, _, stop := run(t, f, raw(func(payload []byte) { got <- payload }), func(c *mapping.Config) {
		c.QueueURL, c.QueueARN = "http://127.0.0.1/1/ordered.fifo", fifoARN
	})
	payload := <-got
	stop()

	var indented bytes.Buffer
	if err := json.Indent(&indented, payload, "", "  "); err != nil {
		t.Fatalf("event %s: %v", payload, err)
	}
	indented.WriteByte('\n')
	golden := filepath.Join("testdata", "event.json")
	if *update {
		if err := os.WriteFile(golden, indented.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), indented.String()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}

	var event events.SQSEvent
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&event); err != nil {
		t.Fatalf("decode as events.SQSEvent: %v", err)
	}
	first := event.Records[0]
	if want := "{\"question\":\"<b> & \\\"7\\\" ≠ 日本 \u2028\",\"n\":9007199254740993}"; first.Body != want {
		t.Errorf("body: got %s, want %s", first.Body, want)
	}
	if got := first.MessageAttributes["blob"].BinaryValue; !bytes.Equal(got, []byte{0, 1, 254, 255}) {
		t.Errorf("blob: got %v", got)
	}
	if got := aws.ToString(first.MessageAttributes["priority"].StringValue); got != "1" || first.MessageAttributes["priority"].DataType != "Number" {
		t.Errorf("priority: got %+v", first.MessageAttributes["priority"])
	}
	if first.EventSource != "aws:sqs" || first.EventSourceARN != fifoARN || first.AWSRegion != "eu-central-1" {
		t.Errorf("source: got %s, %s, %s", first.EventSource, first.EventSourceARN, first.AWSRegion)
	}
}
