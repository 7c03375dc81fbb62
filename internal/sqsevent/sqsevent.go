// Package sqsevent reads the event with which Lambda hands over a batch of SQS messages, and writes the answer that names
// the failed ones. It reads what this project needs of an event and steps over the rest.
//
// Source: AWS Lambda Developer Guide, "Using Lambda with Amazon SQS" and "Handling errors for an SQS event source in Lambda".
package sqsevent

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Record is one message.
type Record struct {
	MessageID      string     `json:"messageId"`
	ReceiptHandle  string     `json:"receiptHandle"`
	Body           string     `json:"body"`
	Attributes     Attributes `json:"attributes"`
	EventSourceARN string     `json:"eventSourceARN"` // of the queue
}

// Attributes are SQS's own of a message, as text; what a message does not have is empty.
type Attributes struct {
	ApproximateReceiveCount string // this delivery included
	SentTimestamp           string // milliseconds since 1970
	MessageGroupID          string `json:"MessageGroupId"`
	SequenceNumber          string // of FIFO queues only
	AWSTraceHeader          string // of the X-Ray trace that the message belongs to
}

type event struct {
	Records []Record `json:"Records"`
}

// usual is how many records a batch has unless somebody asks for more, and a FIFO queue's at most.
const usual = 10

// Decode reads an event. Text that is not UTF-8 is replaced rather than refused, and of a name that comes twice the later one
// counts: one odd message must not take its batch mates with it.
func Decode(payload []byte) ([]Record, error) {
	e := event{Records: make([]Record, 0, usual)}
	if err := json.Unmarshal(payload, &e, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("decode SQS event: %w", err)
	}
	return e.Records, nil
}

// Failures is the answer that has the messages of these ids come back: all others count as done. Without any the list is
// empty and never null, which not every poller accepts.
func Failures(ids []string) ([]byte, error) {
	type failure struct {
		ItemIdentifier string `json:"itemIdentifier"`
	}
	answer := struct {
		BatchItemFailures []failure `json:"batchItemFailures"`
	}{[]failure{}}
	for _, id := range ids {
		answer.BatchItemFailures = append(answer.BatchItemFailures, failure{id})
	}
	return json.Marshal(answer, jsontext.AllowInvalidUTF8(true))
}
