package dlqalarm

import (
	"slices"

	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

// Summary is the function's answer: what lies in the dead-letter queues, by queue, task type and reason. It holds
// nothing of any message's content.
type Summary struct {
	Event     Kind           `json:"event"`
	Published bool           `json:"published"`
	Queues    []QueueSummary `json:"queues"`
	// Lost are the tasks that were marked as failed because no message was left of them.
	Lost []task.ID `json:"lost,omitzero"`
}

// QueueSummary is what was seen in one queue.
type QueueSummary struct {
	Name        string      `json:"queue"`
	ARN         string      `json:"arn,omitzero"`
	Alarm       string      `json:"alarm"`       // and the heading in the runbook
	Seen        int         `json:"seen"`        // messages
	Approximate int         `json:"approximate"` // messages by the queue's own count
	Complete    bool        `json:"complete"`    // false: there may be more than were seen
	Groups      []dlq.Group `json:"groups"`      // the largest first
}

func summarize(e Event, looks []*look) Summary {
	s := Summary{Event: e.Kind, Queues: []QueueSummary{}}
	for _, l := range looks {
		alarm := l.queue.alarm()
		if e.Alarm.Name != "" && slices.Contains(e.Alarm.Queues, l.queue.name()) {
			alarm = e.Alarm.Name
		}
		s.Queues = append(s.Queues, QueueSummary{
			Name: l.queue.name(), ARN: l.arn, Alarm: alarm,
			Seen: len(l.letters), Approximate: l.approximate, Complete: l.complete(),
			Groups: dlq.Groups(l.letters),
		})
	}
	return s
}

func (s Summary) seen() (n int) {
	for _, q := range s.Queues {
		n += q.Seen
	}
	return n
}

// empty says that every queue is known to hold nothing.
func (s Summary) empty() bool {
	for _, q := range s.Queues {
		if q.Seen > 0 || !q.Complete {
			return false
		}
	}
	return true
}
