package engine

import (
	"container/list"
	"fmt"
	"time"
)

// Attribute is one message attribute. Binary holds the value where the type begins with Binary,
// String holds it otherwise.
type Attribute struct {
	Type   string `json:"t"`
	String string `json:"s,omitzero"`
	Binary []byte `json:"b,omitzero"`
}

// size is what the attribute counts towards the size of its message.
// Source: Amazon SQS Developer Guide, "Amazon SQS message metadata": name, type and value all count.
func (a Attribute) size(name string) int {
	return len(name) + len(a.Type) + len(a.String) + len(a.Binary)
}

// Outgoing is a message that is about to be sent.
type Outgoing struct {
	Body       string
	Attributes map[string]Attribute
	// Delay hides the message for so long, 0 to 15 minutes; nil means the queue's own delay.
	Delay *time.Duration
	// GroupID is required in a FIFO queue and names the tenant of a fair queue in a standard one.
	GroupID string
	// DeduplicationID may be left out of a FIFO queue with content-based deduplication.
	DeduplicationID string
	// TraceHeader is the AWSTraceHeader system attribute; it does not count towards the size.
	TraceHeader string
	SenderID    string
}

// Size is the body's and the attributes' length in bytes, which the limits apply to.
func (o Outgoing) Size() int {
	n := len(o.Body)
	for name, a := range o.Attributes {
		n += a.size(name)
	}
	return n
}

// Sent is the answer to one sent message.
type Sent struct {
	MessageID string
	// SequenceNumber is 20 digits, set in FIFO queues only. A duplicate gets that of the first copy.
	SequenceNumber string
}

// Message is one delivery of a message.
type Message struct {
	ID              string
	ReceiptHandle   string
	Body            string
	Attributes      map[string]Attribute // shared with the engine: read only
	SenderID        string
	SentAt          time.Time
	FirstReceivedAt time.Time
	ReceiveCount    int // over all queues that held the message, this delivery included
	GroupID         string
	DeduplicationID string
	SequenceNumber  string
	TraceHeader     string
	SourceArn       string // queue that it was dead-lettered from, if any
}

type state uint8

const (
	absent   state = iota
	delayed        // sent, not yet deliverable
	ready          // deliverable, as far as its group allows
	inFlight       // received, hidden until visibleAt
)

type message struct {
	position uint64 // order of arrival, unique in the engine, never used again
	id       string
	body     string
	attrs    map[string]Attribute
	trace    string
	group    string
	dedup    string
	sequence string
	sender   string
	source   string

	sentAt       time.Time
	retainedFrom time.Time // what the retention period counts from

	state         state
	visibleAt     time.Time // end of delay or visibility timeout; once ready, since when
	receives      int
	firstReceived time.Time
	lastReceived  time.Time

	tenant     *group
	element    *list.Element // place in a FIFO group
	readyAt    int           // place in a standard group's heap
	timerAt    int
	retainedAt int
}

func newMessage() *message { return &message{readyAt: -1, timerAt: -1, retainedAt: -1} }

func (m *message) deliver(q *queue) Message {
	return Message{
		ID: m.id, ReceiptHandle: newReceipt(q.id, m.position, m.receives), Body: m.body, Attributes: m.attrs,
		SenderID: m.sender, SentAt: m.sentAt, FirstReceivedAt: m.firstReceived, ReceiveCount: m.receives,
		GroupID: m.group, DeduplicationID: m.dedup, SequenceNumber: m.sequence, TraceHeader: m.trace,
		SourceArn: m.source,
	}
}

// sequenceNumber turns a position into the 20 digits that FIFO queues show; it keeps the order.
func sequenceNumber(position uint64) string { return fmt.Sprintf("18849%015d", position) }
