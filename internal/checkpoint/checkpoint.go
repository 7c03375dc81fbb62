// Package checkpoint keeps what must outlive a worker in one DynamoDB table: threads with their numbered
// checkpoints, the record of every task, the newest result of each thread, tickets, and idempotency
// keys.
//
// The table has a string partition key "pk" and a string sort key "sk":
//
//	thread#<id>   checkpoint#<n, 20 digits>   one finished step
//	thread#<id>   data#<n, 20 digits>#<i>     a part of a step's data that is too large for one item
//	thread#<id>   history#<ULID>              one task
//	thread#<id>   result                      the newest final result
//	ticket#<id>   state                       one ticket
//	key#<hash>    key                         one Idempotency-Key
//	sweep         state                       how far the search for unfinished tasks has come
//
// Ids cannot contain '#', so that no id can forge another's key.
package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/task"
)

// Status is where a task stands.
type Status string

// The statuses of a task. Only succeeded and failed are final, and a failed one is run again when its
// message is moved out of the dead-letter queue.
const (
	Queued    Status = "queued"    // recorded; on the queue or about to be, also between two deliveries of a run that goes on
	Running   Status = "running"   // a worker has claimed it
	Retrying  Status = "retrying"  // an attempt ended without success; the message comes back
	Succeeded Status = "succeeded" // its result is committed
	Failed    Status = "failed"    // given up; the message is or will be in the dead-letter queue
)

// Record is the record of one task: a history#<ULID> item.
type Record struct {
	TaskID      task.ID
	Task        string // the task's type; empty when the message could not be read
	Status      Status
	Attempts    []Attempt // one per claim, oldest first
	Steps       []Step    // the committed steps, in their order
	Step        string    // the step that was committed or failed last
	Error       *task.Failure
	TraceID     string      // the X-Ray trace of the request that submitted it, or of its first message; "": unknown
	MessageID   string      // of the newest message that carried the task
	Redrives    []Redrive   // out of the dead-letter queue, message by message, oldest first
	ResultN     uint64      // checkpoint that holds the result; 0: no result yet
	Tokens      task.Tokens // used by the committed steps
	Lease       Lease
	SubmittedAt time.Time
	UpdatedAt   time.Time
	NextRetryAt time.Time // zero unless retrying
}

// NeverSent reports whether the task has failed because its message never reached the queue, or was lost before any worker
// got it.
func (r Record) NeverSent() bool {
	return r.Status == Failed && len(r.Attempts) == 0 && r.Error != nil &&
		(r.Error.Code == task.CodeSubmitFailed || r.Error.Code == task.CodeMessageLost)
}

// Attempt is one delivery of a task that a worker has claimed.
type Attempt struct {
	StartedAt time.Time
	EndedAt   time.Time // zero: running, or the worker died
	MessageID string
	Step      string        // at which it ended
	Error     *task.Failure // nil: succeeded, running, or the worker died; its code is CONTINUED when the run goes on
}

// Step is a committed step of a task: its name and the number of its checkpoint.
type Step struct {
	Name string
	N    uint64
}

// Lease says who may commit for a task, and until when nobody else may claim it.
type Lease struct {
	Owner string    // the Lambda request id
	Until time.Time // zero: nobody holds it
	Fence int64     // grows with every claim; a commit under an older fence is refused
}

// Checkpoint is what one finished step left behind.
type Checkpoint struct {
	Thread    string
	N         uint64 // 1, 2, 3 … within the thread
	TaskID    task.ID
	Task      string // the task's type
	Step      string
	Data      jsontext.Value // what the step added, byte for byte
	Last      bool           // the data is its task's result
	Attempt   int
	Duration  time.Duration // of the step
	Tokens    task.Tokens   // that the step used
	UpdatedAt time.Time
}

// Result is a thread's newest final result.
type Result struct {
	Thread      string
	TaskID      task.ID
	N           uint64 // the checkpoint it was committed with
	Data        jsontext.Value
	CompletedAt time.Time
}

// Key is a client's Idempotency-Key.
type Key struct {
	Hash      string // of the caller and the key
	Body      string // hash of what was submitted under it
	TaskID    task.ID
	MessageID string // empty until the message is known to be on the queue
}

// What callers decide on. ErrNotFound also stands for expired items that the table has not deleted yet.
var (
	ErrNotFound  = errors.New("not found")
	ErrSucceeded = errors.New("task has already succeeded")
	ErrFailed    = errors.New("task has failed for good")
	// ErrFenceLost says that another worker has claimed the task, or that it has ended: whoever gets it
	// must stop without any further effect.
	ErrFenceLost = errors.New("task is owned by another worker")
	// ErrTicketChanged says that the ticket has another version than the step read.
	ErrTicketChanged = errors.New("ticket was changed by another task")
	// ErrTooLarge says that a step's data does not fit a checkpoint: more than [MaxStepBytes] after
	// compression.
	ErrTooLarge = fmt.Errorf("output exceeds %d bytes after compression", MaxStepBytes)
)

// LeaseHeldError says that another worker is at the task.
type LeaseHeldError struct{ Until time.Time }

func (e *LeaseHeldError) Error() string {
	return "task is claimed by another worker until " + e.Until.UTC().Format(time.RFC3339Nano)
}

const (
	// MaxStepBytes is the most that one step's data may take after compression.
	MaxStepBytes = 3 << 20
	// maxInline keeps an item under DynamoDB's 400 KB, with room for its other attributes.
	// Source: Amazon DynamoDB Developer Guide, "Constraints".
	maxInline = 350 << 10
	// compressFrom is where compression can begin to pay: up to 1 KB an item costs one write unit
	// anyhow.
	compressFrom = 1 << 10
)
