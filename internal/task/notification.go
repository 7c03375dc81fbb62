package task

import (
	"maps"
	"time"

	"github.com/go-json-experiment/json"
)

// AllowTopics gives a registry of the same types that also takes the messages which the named SNS topics put on the
// queue: [Registry.Decode] unwraps their notifications. Those of any other topic fail with
// [CodeTopicNotAllowed], since whoever may publish there could otherwise hand in tasks.
func (r *Registry) AllowTopics(arns ...string) *Registry {
	topics := maps.Clone(r.topics)
	if topics == nil {
		topics = map[string]bool{}
	}
	for _, arn := range arns {
		topics[arn] = true
	}
	return &Registry{types: r.types, topics: topics}
}

// notification is what SNS puts into a queue that is subscribed without raw message delivery. Like an SQS message's own
// attributes, those inside carry nothing that the message's text does not say.
// Source: Amazon SNS Developer Guide, "Fanout to Amazon SQS queues".
type notification struct {
	Type      string `json:"Type"`
	TopicARN  string `json:"TopicArn"`
	Message   string `json:"Message"`
	MessageID string `json:"MessageId"`
	Timestamp string `json:"Timestamp"`
}

// notificationOf tells a notification from a task's own body.
func notificationOf(members []Member) (n notification, ok bool) {
	text := func(m Member) (s string) {
		if m.Value.Kind() == '"' {
			_ = json.Unmarshal(m.Value, &s) // what is no string stays empty
		}
		return s
	}
	for _, m := range members {
		switch m.Name {
		case FieldTask:
			return notification{}, false
		case "Type":
			n.Type = text(m)
		case "TopicArn":
			n.TopicARN = text(m)
		case "Message":
			n.Message = text(m)
		case "MessageId":
			n.MessageID = text(m)
		case "Timestamp":
			n.Timestamp = text(m)
		}
	}
	return n, n.Type == "Notification" && n.TopicARN != ""
}

// origin is the message id and time to make a task's id of. SNS's own are the same however often it delivers, while each
// delivery is a new message to SQS, whose id and time are the fallback.
func (n notification) origin(messageID string, sentAt time.Time) (string, time.Time) {
	at, err := time.Parse(time.RFC3339, n.Timestamp)
	if n.MessageID == "" || err != nil {
		return messageID, sentAt
	}
	return n.MessageID, at
}
