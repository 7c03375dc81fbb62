// Package deadletter is what an operator does with dead letters: look at them, put them back on their queue, or throw them
// away.
//
// Looking hides a message for a moment and makes it visible again. A dead-letter queue has no redrive of its own, so that
// a receive counts towards nothing.
package deadletter

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

// SQS is what is called of the SQS client.
type SQS interface {
	dlq.API
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	PurgeQueue(context.Context, *sqs.PurgeQueueInput, ...func(*sqs.Options)) (*sqs.PurgeQueueOutput, error)
	StartMessageMoveTask(context.Context, *sqs.StartMessageMoveTaskInput, ...func(*sqs.Options)) (*sqs.StartMessageMoveTaskOutput, error)
	ListMessageMoveTasks(context.Context, *sqs.ListMessageMoveTasksInput, ...func(*sqs.Options)) (*sqs.ListMessageMoveTasksOutput, error)
	CancelMessageMoveTask(context.Context, *sqs.CancelMessageMoveTaskInput, ...func(*sqs.Options)) (*sqs.CancelMessageMoveTaskOutput, error)
}

// Store is what is called of [checkpoint.Store].
type Store interface {
	dlq.Records
	AsDeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error)
	DeadLettered(ctx context.Context, d checkpoint.DeadLetter) (checkpoint.Record, error)
	BeginRedrive(ctx context.Context, rec checkpoint.Record, messageID, code string) (checkpoint.Record, error)
	EndRedrive(ctx context.Context, rec checkpoint.Record, messageID, copyID string, sameTask bool) error
	WithdrawRedrive(ctx context.Context, rec checkpoint.Record, messageID string) error
}

// Config of a [Queue]. Everything is required unless it says otherwise.
type Config struct {
	URL           string // of the tasks' queue
	DeadLetterURL string
	Tasks         *task.Registry // to read the messages
	Store         Store
	SQS           SQS
	Logger        *slog.Logger // hears ids and codes, never a reason or a body
	// Hide is how long a message stays hidden from others when this program dies while it looks, 3 s to 12 h in whole
	// seconds; zero: 30 s.
	Hide time.Duration
	// Settle is how long a queue's counts may lag behind; zero: a minute.
	// Source: Amazon SQS API Reference, "GetQueueAttributes".
	Settle time.Duration
	// Pause is the time between two looks at something that only time can change; zero: a second.
	Pause time.Duration
	// Now is the clock for ages; nil: the system's.
	Now func() time.Time
}

// Queue is a dead-letter queue with the queue that its messages come from. Its methods may be called one at a time; any
// number of programs may be at the same queue.
type Queue struct{ Config }

// New makes a queue.
func New(c Config) *Queue {
	for value, otherwise := range map[*time.Duration]time.Duration{&c.Hide: 30 * time.Second, &c.Settle: time.Minute, &c.Pause: time.Second} {
		if *value == 0 {
			*value = otherwise
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Queue{c}
}

// Name is the name of the dead-letter queue.
func (q *Queue) Name() string { return dlq.Name(q.DeadLetterURL) }

func (q *Queue) fifo() bool { return dlq.IsFIFO(q.DeadLetterURL) }

// Selection says which dead letters are meant: those that fit each of the lists that are not empty. The zero value is all.
type Selection struct {
	Types   []string // as the messages have them
	Reasons []string // codes, as a look shows them
	TaskIDs []task.ID
}

// All says that the selection leaves out nothing.
func (s Selection) All() bool { return len(s.Types)+len(s.Reasons)+len(s.TaskIDs) == 0 }

// takes reports whether a letter is selected. One whose redrive was interrupted also has the reason that it had then, so
// that the same command again brings it to its end.
func (s Selection) takes(l *dlq.Letter, begun checkpoint.Redrive) bool {
	return fits(s.Types, l.Written) && fits(s.TaskIDs, l.ID) && (fits(s.Reasons, l.Code) || begun.Code != "" && fits(s.Reasons, begun.Code))
}

func fits[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }
