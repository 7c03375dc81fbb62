package sqs

import (
	"unicode/utf8"

	"agentworker/internal/emulator/sqs/engine"
)

// senderID stands for the caller. Credentials are not looked at, so it is the same for everybody.
const senderID = "AIDAAAAAAAAAAAAAAAAAA"

type sendRequest struct {
	QueueURL string `json:"QueueUrl"`
	outgoing
}

// outgoing is what a single send and an entry of a batch have in common.
type outgoing struct {
	MessageBody             *string
	DelaySeconds            *int
	MessageAttributes       map[string]attributeValue
	MessageSystemAttributes map[string]attributeValue
	MessageDeduplicationID  *string `json:"MessageDeduplicationId"`
	MessageGroupID          *string `json:"MessageGroupId"`
}

type sendAnswer struct {
	MessageID             string `json:"MessageId"`
	MD5OfMessageBody      string
	MD5OfAttributes       string `json:"MD5OfMessageAttributes,omitempty"`
	MD5OfSystemAttributes string `json:"MD5OfMessageSystemAttributes,omitempty"`
	SequenceNumber        string `json:",omitempty"`
}

func (c *call) sendMessage(in sendRequest) (sendAnswer, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return sendAnswer{}, err
	}
	if err := c.engine.QueueExists(name); err != nil {
		return sendAnswer{}, err
	}
	out, refused := c.outgoing(in.outgoing)
	if refused != nil {
		return sendAnswer{}, refused
	}
	sent, err := c.engine.Send(name, out)
	if err != nil {
		return sendAnswer{}, err
	}
	return answerTo(in.outgoing, out, sent), nil
}

// outgoing checks what does not depend on the queue.
func (c *call) outgoing(in outgoing) (engine.Outgoing, *engine.Error) {
	var none engine.Outgoing
	if in.MessageBody == nil || *in.MessageBody == "" {
		return none, missing("MessageBody")
	}
	if _, bad := illegal(*in.MessageBody); bad {
		return none, refuse(invalidContents, "Invalid characters found. Valid unicode characters are "+
			"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	out := engine.Outgoing{Body: *in.MessageBody, SenderID: senderID}
	var err *engine.Error
	if out.Attributes, err = attributesOf(in.MessageAttributes); err != nil {
		return none, err
	}
	if out.TraceHeader, err = c.traceHeader(in.MessageSystemAttributes); err != nil {
		return none, err
	}
	if out.GroupID, err = fifoID(in.MessageGroupID, "MessageGroupId"); err != nil {
		return none, err
	}
	if out.DeduplicationID, err = fifoID(in.MessageDeduplicationID, "MessageDeduplicationId"); err != nil {
		return none, err
	}
	if in.DelaySeconds != nil {
		if *in.DelaySeconds < 0 || *in.DelaySeconds > 900 {
			return none, invalidValue(*in.DelaySeconds, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
		}
		out.Delay = seconds(*in.DelaySeconds)
	}
	return out, nil
}

// traceHeader takes the one system attribute that can be sent; without it, the trace header of the
// HTTP request is kept, which is how a traced function's messages continue its trace. One that is not
// UTF-8, as all else that is kept is, is no trace.
func (c *call) traceHeader(in map[string]attributeValue) (string, *engine.Error) {
	for name := range in {
		if name != "AWSTraceHeader" {
			return "", refuse(engine.InvalidParameterValue,
				"Message system attribute name '%s' is invalid: the only one is AWSTraceHeader.", name)
		}
	}
	given, ok := in["AWSTraceHeader"]
	if !ok {
		if of := c.http.Header.Get("X-Amzn-Trace-Id"); utf8.ValidString(of) {
			return of, nil
		}
		return "", nil
	}
	if given.DataType != "String" || given.StringValue == nil || *given.StringValue == "" {
		return "", refuse(engine.InvalidParameterValue,
			"Message system attribute 'AWSTraceHeader' must contain a non-empty value of type 'String'.")
	}
	return *given.StringValue, nil
}

func answerTo(in outgoing, out engine.Outgoing, sent engine.Sent) sendAnswer {
	answer := sendAnswer{
		MessageID: sent.MessageID, SequenceNumber: sent.SequenceNumber,
		MD5OfMessageBody: md5Of(out.Body), MD5OfAttributes: md5OfAttributes(out.Attributes),
	}
	if trace, ok := in.MessageSystemAttributes["AWSTraceHeader"]; ok {
		answer.MD5OfSystemAttributes = md5OfAttributes(map[string]engine.Attribute{
			"AWSTraceHeader": {Type: trace.DataType, String: *trace.StringValue},
		})
	}
	return answer
}

type sendBatchRequest struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []sendEntry
}

type sendEntry struct {
	ID string `json:"Id"`
	outgoing
}

type sendBatchAnswer struct {
	Successful []sendEntryAnswer
	Failed     []failedEntry `json:",omitempty"`
}

type sendEntryAnswer struct {
	ID string `json:"Id"`
	sendAnswer
}

func (c *call) sendMessageBatch(in sendBatchRequest) (sendBatchAnswer, error) {
	answer := sendBatchAnswer{Successful: []sendEntryAnswer{}}
	name, err := c.batch(in.QueueURL, len(in.Entries), func(i int) string { return in.Entries[i].ID })
	if err != nil {
		return answer, err
	}

	var good []engine.Outgoing
	var entries []sendEntry
	size := 0
	for _, entry := range in.Entries {
		size += sizeOf(entry.outgoing)
		out, refused := c.outgoing(entry.outgoing)
		if refused != nil {
			answer.Failed = append(answer.Failed, failed(entry.ID, refused))
			continue
		}
		good, entries = append(good, out), append(entries, entry)
	}
	if size > engine.MaximumMessageSize {
		return answer, refuse(batchTooLong, "Batch requests cannot be longer than %d bytes. You have sent %d bytes.",
			engine.MaximumMessageSize, size)
	}
	results, err := c.engine.SendBatch(name, good)
	if err != nil {
		return answer, inBatch(err)
	}
	for i, result := range results {
		if result.Err != nil {
			answer.Failed = append(answer.Failed, failed(entries[i].ID, result.Err))
			continue
		}
		answer.Successful = append(answer.Successful,
			sendEntryAnswer{entries[i].ID, answerTo(entries[i].outgoing, good[i], result.Sent)})
	}
	return answer, nil
}

// sizeOf counts an entry as it was sent, whether it will be accepted or not.
func sizeOf(in outgoing) int {
	var n int
	if in.MessageBody != nil {
		n = len(*in.MessageBody)
	}
	for name, a := range in.MessageAttributes {
		n += len(name) + len(a.DataType) + len(a.BinaryValue)
		if a.StringValue != nil {
			n += len(*a.StringValue)
		}
	}
	return n
}
