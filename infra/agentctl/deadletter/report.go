package deadletter

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

// Report says what a redrive or a purge has done.
type Report struct {
	Queue  string `json:"queue"`
	DryRun bool   `json:"dry_run,omitzero"`
	Seen   int    `json:"seen"` // messages
	// Redriven messages were copied, and deleted when SQS had confirmed the copy; Purged ones just deleted. In a dry run they would be.
	Redriven int `json:"redriven"`
	Purged   int `json:"purged"`
	// Succeeded of them have a task that had already succeeded: the worker acknowledges the copy without effect.
	Succeeded int `json:"already_succeeded"`
	// Finished messages had a copy from a redrive that was interrupted, and were only deleted.
	Finished int            `json:"finished"`
	Left     map[string]int `json:"left,omitempty"` // selected messages that stay, since their tasks go on, by code
	// Uncertain messages may have a copy from a redrive that was interrupted, and stay until that can be told.
	Uncertain int            `json:"uncertain"`
	Others    map[string]int `json:"others,omitempty"` // messages that the selection leaves out, by code
	// Again is how many copies, of this redrive or of another one at the same time, lay there again before the end: their tasks have
	// failed once more. They stay.
	Again int `json:"failed_again"`
	// Newer messages do not say which task they are, and were sent since this redrive began: copies of another one, or new. They stay.
	Newer int `json:"newer"`
	// Failed messages could not be redriven, and stay. So do those behind them in their group.
	Failed  int       `json:"failed"`
	Problem string    `json:"problem,omitzero"`  // of one of those
	Missing []task.ID `json:"missing,omitempty"` // asked for by id and not seen
	// Unseen is how many messages more the queue had at the beginning, by its own count: others hide them, they lie behind the first ten of
	// their group that stay, or it ended early.
	Unseen     int     `json:"unseen"`
	EndedEarly bool    `json:"ended_early,omitzero"` // interrupted, or kept by an error from going on
	Groups     []Group `json:"groups"`               // of what was redriven, purged or finished
}

// Whole says that everything that was selected has been dealt with.
func (r Report) Whole() bool { return r.Uncertain+r.Failed+r.Unseen+len(r.Missing) == 0 }

// outcome collects what becomes of the messages. It is safe for concurrent use.
type outcome struct {
	queue     *Queue
	selection Selection
	progress  func(int)

	mu      sync.Mutex
	sum     Report
	letters []*dlq.Letter   // of the report's groups
	seen    map[string]bool // message ids
	tasks   map[task.ID]bool
	unsure  map[string]bool // ids of the uncertain messages
	waiting map[string]int  // groups with an uncertain message: in which pass
	stuck   map[string]bool // groups with a message that could not be redriven
	copies  map[string]bool // ids of the copies that were sent; true: it lies in the dead-letter queue by now
}

func newOutcome(q *Queue, s Selection, o RedriveOptions) *outcome {
	progress := o.Progress
	if progress == nil {
		progress = func(int) {}
	}
	return &outcome{
		queue: q, selection: s, progress: progress, sum: Report{Queue: q.Name(), DryRun: o.DryRun, Left: map[string]int{}, Others: map[string]int{}},
		seen: map[string]bool{}, tasks: map[task.ID]bool{}, unsure: map[string]bool{}, waiting: map[string]int{}, stuck: map[string]bool{}, copies: map[string]bool{},
	}
}

func (o *outcome) saw(l *dlq.Letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[l.MessageID], o.tasks[l.ID] = true, true
}

// done counts a message that was dealt with.
func (o *outcome) done(l *dlq.Letter, count *int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*count++
	o.letters = append(o.letters, l)
	delete(o.unsure, l.MessageID)
	if l.Code == dlq.CodeSucceeded {
		o.sum.Succeeded++
	}
	o.progress(len(o.letters))
}

func (o *outcome) redriven(l *dlq.Letter) { o.done(l, &o.sum.Redriven) }
func (o *outcome) finished(l *dlq.Letter) { o.done(l, &o.sum.Finished) }
func (o *outcome) purged(l *dlq.Letter)   { o.done(l, &o.sum.Purged) }

func (o *outcome) copied(copyID string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.copies[copyID] = false
}

// again reports whether the message is one of the copies: a task that keeps failing is not to go round for ever.
func (o *outcome) again(m types.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ours := o.copies[*m.MessageId]
	if ours && !known {
		o.copies[*m.MessageId] = true
		o.sum.Again++
	}
	return ours
}

func (o *outcome) failedAgain(l *dlq.Letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Again++
	delete(o.unsure, l.MessageID)
}

func (o *outcome) newer(l *dlq.Letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Newer++
	delete(o.unsure, l.MessageID)
}

func (o *outcome) other(l *dlq.Letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Others[l.Code]++
	delete(o.unsure, l.MessageID)
}

func (o *outcome) left(l *dlq.Letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Left[l.Code]++
	delete(o.unsure, l.MessageID)
}

func (o *outcome) failed(ctx context.Context, m types.Message, l *dlq.Letter, err error) verdict {
	o.queue.Logger.WarnContext(ctx, "dead letter not dealt with", "task_id", l.ID, "message_id", l.MessageID, "error", err)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Failed++
	o.stuck[group(m)] = true
	delete(o.unsure, l.MessageID)
	if o.sum.Problem == "" {
		o.sum.Problem = err.Error()
	}
	return stays
}

func (o *outcome) uncertain(m types.Message, l *dlq.Letter, pass int) verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unsure[l.MessageID] = true
	o.waiting[group(m)] = pass
	return later
}

// blocked reports whether a message before this one in its FIFO group could not be redriven, or is not decided yet.
func (o *outcome) blocked(m types.Message, pass int) (stuck, undecided bool) {
	if !o.queue.fifo() {
		return false, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stuck[group(m)], o.waiting[group(m)] == pass
}

// report is what there is to say in the end. before is how deep the queue was at the beginning: counts lag behind, most of
// all those of a queue that changes. err is what it ended by.
func (o *outcome) report(before dlq.Depth, err error) Report {
	r := o.sum
	r.EndedEarly = err != nil
	r.Seen, r.Uncertain = len(o.seen), len(o.unsure)
	r.Groups, _ = groups(o.letters)
	for _, id := range o.selection.TaskIDs {
		if !o.tasks[id] {
			r.Missing = append(r.Missing, id)
		}
	}
	// Of tasks that are named and were found there is no more to see.
	if len(o.selection.TaskIDs) == 0 || len(r.Missing) > 0 {
		r.Unseen = max(0, before.Total()-r.Seen)
	}
	return r
}
