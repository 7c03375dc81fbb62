package mapping

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/emulator/lambda"
)

// message is one received message and its record in the function's event.
type message struct {
	id, handle, group, trace string
	received, expires        time.Time
	record                   jsontext.Value
}

// record is a message in Lambda's shape. Source: AWS Lambda Developer Guide, "Using Lambda with Amazon SQS", example event.
type record struct {
	MessageID              string               `json:"messageId"`
	ReceiptHandle          string               `json:"receiptHandle"`
	Body                   string               `json:"body"`
	Attributes             map[string]string    `json:"attributes"`
	MessageAttributes      map[string]attribute `json:"messageAttributes"`
	MD5OfMessageAttributes string               `json:"md5OfMessageAttributes,omitempty"`
	MD5OfBody              string               `json:"md5OfBody"`
	EventSource            string               `json:"eventSource"`
	EventSourceARN         string               `json:"eventSourceARN"`
	AWSRegion              string               `json:"awsRegion"`
}

type attribute struct {
	StringValue      *string  `json:"stringValue,omitempty"`
	BinaryValue      []byte   `json:"binaryValue,omitempty"` // base64
	StringListValues []string `json:"stringListValues"`
	BinaryListValues [][]byte `json:"binaryListValues"`
	DataType         string   `json:"dataType"`
}

func (m *Mapping) newMessage(msg types.Message, received time.Time) message {
	r := record{
		MessageID: aws.ToString(msg.MessageId), ReceiptHandle: aws.ToString(msg.ReceiptHandle), Body: aws.ToString(msg.Body),
		Attributes: msg.Attributes, MessageAttributes: map[string]attribute{},
		MD5OfMessageAttributes: aws.ToString(msg.MD5OfMessageAttributes), MD5OfBody: aws.ToString(msg.MD5OfBody),
		EventSource: "aws:sqs", EventSourceARN: m.config.QueueARN, AWSRegion: m.config.Region,
	}
	for name, value := range msg.MessageAttributes {
		r.MessageAttributes[name] = attribute{
			StringValue: value.StringValue, BinaryValue: value.BinaryValue,
			StringListValues: value.StringListValues, BinaryListValues: value.BinaryListValues,
			DataType: aws.ToString(value.DataType),
		}
	}
	encoded, err := json.Marshal(r, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil { // strings and bytes always encode
		panic(err)
	}
	return message{
		id: r.MessageID, handle: r.ReceiptHandle, record: encoded,
		group: r.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)],
		trace: r.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)],
		// The visibility began when SQS answered; what is past expires is visible again for certain.
		received: received, expires: received.Add(m.visibility),
	}
}

const eventHead, eventTail = `{"Records":[`, `]}`

// encode makes the function's event.
func encode(batch []message) []byte {
	event := append(make([]byte, 0, size(batch)), eventHead...)
	for i, msg := range batch {
		if i > 0 {
			event = append(event, ',')
		}
		event = append(event, msg.record...)
	}
	return append(event, eventTail...)
}

func size(batch []message) int {
	total := len(eventHead) + len(eventTail)
	for _, msg := range batch {
		total += len(msg.record) + 1
	}
	return total
}

// cut takes as many messages as fit into one invocation's payload, at least one.
func cut(batch []message) (fits, rest []message) {
	total := len(eventHead) + len(eventTail)
	for i, msg := range batch {
		total += len(msg.record) + 1
		if total > lambda.MaxPayload && i > 0 {
			return batch[:i:i], batch[i:]
		}
	}
	return batch, nil
}

// live drops the messages whose visibility has ended: SQS hands them out again.
func live(batch []message) []message {
	now := time.Now()
	var left []message
	for _, msg := range batch {
		if now.Before(msg.expires) {
			left = append(left, msg)
		}
	}
	return left
}

func only(batch []message, wanted map[string]bool) []message {
	var chosen []message
	for _, msg := range batch {
		if wanted[msg.id] {
			chosen = append(chosen, msg)
		}
	}
	return chosen
}

func ids(batch []message) []string {
	var names []string
	for _, msg := range batch {
		names = append(names, msg.id)
	}
	return names
}
