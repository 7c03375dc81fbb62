package sqs

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"agentworker/internal/emulator/sqs/engine"
)

type receiveRequest struct {
	QueueURL                    string `json:"QueueUrl"`
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptID     *string `json:"ReceiveRequestAttemptId"` // checked, then without effect
}

type receiveAnswer struct {
	Messages []messageAnswer `json:",omitempty"`
}

type messageAnswer struct {
	MessageID         string `json:"MessageId"`
	ReceiptHandle     string
	MD5OfBody         string
	Body              string
	Attributes        map[string]string         `json:",omitempty"`
	MD5OfAttributes   string                    `json:"MD5OfMessageAttributes,omitempty"`
	MessageAttributes map[string]attributeValue `json:",omitempty"`
}

// systemAttributes are the names that a receive may ask for.
// Source: Amazon SQS API Reference, ReceiveMessage.
func systemAttributes() []string {
	return []string{
		"All", "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp",
		"SequenceNumber", "MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn",
		"SqsManagedSseEnabled",
	}
}

func (c *call) receiveMessage(in receiveRequest) (receiveAnswer, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return receiveAnswer{}, err
	}
	if err := c.engine.QueueExists(name); err != nil {
		return receiveAnswer{}, err
	}
	want, err := demand(in)
	if err != nil {
		return receiveAnswer{}, err
	}
	messages, err := c.engine.Receive(c.http.Context(), name, want)
	if err != nil {
		return receiveAnswer{}, err
	}
	var answer receiveAnswer
	system := slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)
	for _, m := range messages {
		answer.Messages = append(answer.Messages, show(m, system, in.MessageAttributeNames))
	}
	return answer, nil
}

func demand(in receiveRequest) (engine.Demand, error) {
	want := engine.Demand{Max: 1}
	if n := in.MaxNumberOfMessages; n != nil {
		if *n < 1 || *n > 10 {
			return want, invalidValue(*n, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
		}
		want.Max = *n
	}
	if n := in.WaitTimeSeconds; n != nil {
		if *n < 0 || *n > 20 {
			return want, invalidValue(*n, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
		}
		want.Wait = seconds(*n)
	}
	if n := in.VisibilityTimeout; n != nil {
		if err := checkVisibility(*n); err != nil {
			return want, err
		}
		want.Visibility = seconds(*n)
	}
	for _, name := range slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames) {
		if !slices.Contains(systemAttributes(), name) {
			return want, refuse(engine.InvalidAttributeName, "Unknown Attribute %s.", name)
		}
	}
	if _, err := fifoID(in.ReceiveRequestAttemptID, "ReceiveRequestAttemptId"); err != nil {
		return want, err
	}
	return want, nil
}

func checkVisibility(n int) *engine.Error {
	if n < 0 || n > 43_200 {
		return invalidValue(n, "VisibilityTimeout", "Must be between 0 and 43200, if provided.")
	}
	return nil
}

func show(m engine.Message, system, wanted []string) messageAnswer {
	out := messageAnswer{MessageID: m.ID, ReceiptHandle: m.ReceiptHandle, MD5OfBody: md5Of(m.Body), Body: m.Body}
	all := slices.Contains(system, "All")
	for name, value := range systemValues(m) {
		if value != "" && (all || slices.Contains(system, name)) {
			if out.Attributes == nil {
				out.Attributes = map[string]string{}
			}
			out.Attributes[name] = value
		}
	}
	// The checksum covers what is returned, not what was sent.
	picked := map[string]engine.Attribute{}
	for name, a := range m.Attributes {
		if !picks(wanted, name) {
			continue
		}
		if out.MessageAttributes == nil {
			out.MessageAttributes = map[string]attributeValue{}
		}
		picked[name] = a
		value := attributeValue{DataType: a.Type}
		if strings.HasPrefix(a.Type, "Binary") {
			value.BinaryValue = a.Binary
		} else {
			value.StringValue = &a.String
		}
		out.MessageAttributes[name] = value
	}
	out.MD5OfAttributes = md5OfAttributes(picked)
	return out
}

func systemValues(m engine.Message) map[string]string {
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	return map[string]string{
		"SenderId":                         m.SenderID,
		"SentTimestamp":                    millis(m.SentAt),
		"ApproximateReceiveCount":          strconv.Itoa(m.ReceiveCount),
		"ApproximateFirstReceiveTimestamp": millis(m.FirstReceivedAt),
		"SequenceNumber":                   m.SequenceNumber,
		"MessageDeduplicationId":           m.DeduplicationID,
		"MessageGroupId":                   m.GroupID,
		"AWSTraceHeader":                   m.TraceHeader,
		"DeadLetterQueueSourceArn":         m.SourceArn,
	}
}

// picks: All and .* stand for every attribute, prefix.* for those that begin with prefix.
func picks(wanted []string, name string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool {
		if w == "All" || w == name {
			return true
		}
		prefix, wild := strings.CutSuffix(w, ".*")
		return wild && strings.HasPrefix(name, prefix)
	})
}
