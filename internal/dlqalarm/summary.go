package dlqalarm

import (
	"cmp"
	"slices"
	"time"

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
	Name        string  `json:"queue"`
	ARN         string  `json:"arn,omitzero"`
	Alarm       string  `json:"alarm"`       // and the heading in the runbook
	Seen        int     `json:"seen"`        // messages
	Approximate int     `json:"approximate"` // messages by the queue's own count
	Complete    bool    `json:"complete"`    // false: there may be more than were seen
	Groups      []Group `json:"groups"`      // the largest first
}

// Group is the dead letters of one task type that lie there for the same reason.
type Group struct {
	Task    string    `json:"task"` // "": not a registered type
	Code    string    `json:"code"` // one of the package's or of package task's, or a task type's own
	Count   int       `json:"count"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest was sent or, in a FIFO queue, dead-lettered
	TaskIDs []task.ID `json:"task_ids"`        // of up to three, the oldest first
	// Reason is that of the oldest. It may quote what users sent: it is for operators, and for no log.
	Reason string `json:"-"`
}

const samples = 3 // task ids of a group

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
			Groups: groups(l.letters),
		})
	}
	return s
}

func groups(letters []*letter) []Group {
	letters = slices.Clone(letters)
	slices.SortFunc(letters, func(a, b *letter) int {
		return cmp.Or(a.sentAt.Compare(b.sentAt), cmp.Compare(a.messageID, b.messageID))
	})
	type kind struct{ task, code string }
	index := map[kind]int{}
	list := []Group{}
	for _, l := range letters {
		k := kind{l.taskType, l.code}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, Group{Task: l.taskType, Code: l.code, Oldest: l.sentAt, Reason: l.reason})
		}
		g := &list[i]
		g.Count++
		if len(g.TaskIDs) < samples {
			g.TaskIDs = append(g.TaskIDs, l.id)
		}
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Code, b.Code))
	})
	return list
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
