package dlq

import (
	"cmp"
	"slices"
	"time"

	"agentworker/internal/task"
)

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

// Groups puts the letters together by type and reason, the largest group first.
func Groups(letters []*Letter) []Group {
	letters = slices.Clone(letters)
	slices.SortFunc(letters, func(a, b *Letter) int {
		return cmp.Or(a.SentAt.Compare(b.SentAt), cmp.Compare(a.MessageID, b.MessageID))
	})
	type kind struct{ task, code string }
	index := map[kind]int{}
	list := []Group{}
	for _, l := range letters {
		k := kind{l.Type, l.Code}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, Group{Task: l.Type, Code: l.Code, Oldest: l.SentAt, Reason: l.Reason})
		}
		g := &list[i]
		g.Count++
		if len(g.TaskIDs) < samples {
			g.TaskIDs = append(g.TaskIDs, l.ID)
		}
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Code, b.Code))
	})
	return list
}
