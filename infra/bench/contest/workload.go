package contest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"agentworker/internal/agent"
	"agentworker/internal/task"
)

// Question is what every task asks. The offline model answers it with about the 300 bytes that the baselines' answer has.
const Question = "What is the dead-letter queue?"

// Batches are the payloads of a workload: threads conversations side by side, each with so many turns, cut into batches of
// size records. No batch has two records of one thread if there are at least size threads.
func Batches(threads, turns, size int) [][]byte {
	var payloads [][]byte
	var records []events.SQSMessage
	for range turns {
		for i := range threads {
			records = append(records, Record(Thread(i), Question))
			if len(records) == size {
				payloads = append(payloads, Payload(records))
				records = nil
			}
		}
	}
	if len(records) > 0 {
		payloads = append(payloads, Payload(records))
	}
	return payloads
}

// Records are messages of so many conversations, one each.
func Records(threads int) []events.SQSMessage {
	records := make([]events.SQSMessage, threads)
	for i := range records {
		records[i] = Record(Thread(i), Question)
	}
	return records
}

// Thread is the id of the i-th conversation.
func Thread(i int) string { return fmt.Sprintf("th-bench-%03d", i) }

// Record is a message as the API's submit puts it on the queue and Lambda hands it over, with a task of its own.
func Record(thread, question string) events.SQSMessage {
	id := string(task.NewID(thread, time.Now()))
	body, _ := json.Marshal(struct { // strings always encode
		Task     string `json:"task"`
		ID       string `json:"task_id"`
		Thread   string `json:"thread_id"`
		Question string `json:"question"`
	}{agent.RAGQuery, id, thread, question})
	text := func(s string) events.SQSMessageAttribute {
		return events.SQSMessageAttribute{StringValue: aws.String(s), DataType: "String"}
	}
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	return events.SQSMessage{
		MessageId: uuid.NewString(), ReceiptHandle: "AQEB" + strings.Repeat("wJnKyrHigUMZj6rYigCgxlaS3SLy0a", 6), Body: string(body),
		Md5OfBody: "e4e68fb7bd0e697a0ae8f1bb342846b3", Md5OfMessageAttributes: "18e31cf8c7e82c76901a7d29b0bd589d",
		Attributes: map[string]string{
			"ApproximateReceiveCount": "1", "SentTimestamp": now, "SenderId": "AROAEXAMPLEEXAMPLE:submit",
			"ApproximateFirstReceiveTimestamp": now, "MessageGroupId": thread,
		},
		MessageAttributes: map[string]events.SQSMessageAttribute{
			task.AttributeTask: text(agent.RAGQuery), task.AttributeTaskID: text(id), task.AttributeThread: text(thread),
			task.AttributePriority: {StringValue: aws.String("1"), DataType: "Number"},
		},
		EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:tasks", AWSRegion: "us-east-1",
	}
}

// Payload is the event of a batch.
func Payload(records []events.SQSMessage) []byte {
	payload, err := json.Marshal(events.SQSEvent{Records: records}, json.Deterministic(true))
	if err != nil { // strings always encode
		panic(err)
	}
	return payload
}
