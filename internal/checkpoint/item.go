package checkpoint

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"agentworker/internal/task"
)

// The kinds that the attribute "type" tells apart for a person who looks at the table.
const (
	kindCheckpoint = "checkpoint"
	kindHistory    = "history"
	kindResult     = "result"
	kindTicket     = "ticket"
	kindKey        = "key"
	kindData       = "data"
	kindSweep      = "sweep"
)

// recordItem is a history#<ULID> item. Names are short enough that a task which succeeds at its first
// attempt fits 1 KB, one write unit.
type recordItem struct {
	PK          string        `dynamodbav:"pk"`
	SK          string        `dynamodbav:"sk"`
	Type        string        `dynamodbav:"type"`
	TaskID      string        `dynamodbav:"task_id"`
	Task        string        `dynamodbav:"task,omitempty"`
	Status      string        `dynamodbav:"status"`
	Attempts    []attemptItem `dynamodbav:"attempts,omitempty"`
	Steps       []stepItem    `dynamodbav:"steps,omitempty"`
	Step        string        `dynamodbav:"step,omitempty"`
	Error       *failureItem  `dynamodbav:"error,omitempty"`
	TraceID     string        `dynamodbav:"trace_id,omitempty"`
	MessageID   string        `dynamodbav:"message_id,omitempty"`
	Redrives    []redriveItem `dynamodbav:"redrives,omitempty"`
	ResultN     uint64        `dynamodbav:"result_n,omitempty"`
	TokensIn    int64         `dynamodbav:"tokens_in,omitempty"`
	TokensOut   int64         `dynamodbav:"tokens_out,omitempty"`
	LeaseOwner  string        `dynamodbav:"lease_owner,omitempty"`
	LeaseUntil  string        `dynamodbav:"lease_until,omitempty"`
	Fence       int64         `dynamodbav:"fence"`
	SubmittedAt string        `dynamodbav:"submitted_at"`
	UpdatedAt   string        `dynamodbav:"updated_at"`
	NextRetryAt string        `dynamodbav:"next_retry_at,omitempty"`
	ExpiresAt   int64         `dynamodbav:"expires_at"`
}

type attemptItem struct {
	StartedAt string       `dynamodbav:"started_at"`
	EndedAt   string       `dynamodbav:"ended_at,omitempty"`
	MessageID string       `dynamodbav:"message_id"`
	Step      string       `dynamodbav:"step,omitempty"`
	Error     *failureItem `dynamodbav:"error,omitempty"`
}

type stepItem struct {
	Name string `dynamodbav:"name"`
	N    uint64 `dynamodbav:"n"`
}

type redriveItem struct {
	MessageID string `dynamodbav:"message_id"`
	Code      string `dynamodbav:"code"`
	At        string `dynamodbav:"at"`
	Fence     int64  `dynamodbav:"fence"`
	Under     string `dynamodbav:"under"`
	To        string `dynamodbav:"to,omitempty"`
	Try       string `dynamodbav:"try"`
}

type failureItem struct {
	Code    string `dynamodbav:"code"`
	Message string `dynamodbav:"message"`
}

type checkpointItem struct {
	PK        string               `dynamodbav:"pk"`
	SK        string               `dynamodbav:"sk"`
	Type      string               `dynamodbav:"type"`
	TaskID    string               `dynamodbav:"task_id"`
	Task      string               `dynamodbav:"task,omitempty"`
	Step      string               `dynamodbav:"step"`
	Data      types.AttributeValue `dynamodbav:"-"` // see pack
	Parts     int                  `dynamodbav:"parts,omitempty"`
	Last      bool                 `dynamodbav:"last,omitempty"`
	Attempt   int                  `dynamodbav:"attempt"`
	Duration  int64                `dynamodbav:"duration_ms"`
	TokensIn  int64                `dynamodbav:"tokens_in,omitempty"`
	TokensOut int64                `dynamodbav:"tokens_out,omitempty"`
	UpdatedAt string               `dynamodbav:"updated_at"`
	ExpiresAt int64                `dynamodbav:"expires_at"`
}

type resultItem struct {
	PK          string `dynamodbav:"pk"`
	SK          string `dynamodbav:"sk"`
	Type        string `dynamodbav:"type"`
	TaskID      string `dynamodbav:"task_id"`
	N           uint64 `dynamodbav:"n"`
	CompletedAt string `dynamodbav:"completed_at"`
	ExpiresAt   int64  `dynamodbav:"expires_at"`
}

type ticketItem struct {
	PK        string `dynamodbav:"pk"`
	SK        string `dynamodbav:"sk"`
	Type      string `dynamodbav:"type"`
	Status    string `dynamodbav:"status"`
	Version   int64  `dynamodbav:"version"`
	UpdatedAt string `dynamodbav:"updated_at"`
}

type keyItem struct {
	PK        string `dynamodbav:"pk"`
	SK        string `dynamodbav:"sk"`
	Type      string `dynamodbav:"type"`
	Body      string `dynamodbav:"body_hash"`
	TaskID    string `dynamodbav:"task_id"`
	MessageID string `dynamodbav:"message_id,omitempty"`
	ExpiresAt int64  `dynamodbav:"expires_at"`
}

// Times are kept as text of one width, in UTC, so that they read well and sort.
const stampLayout = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(stampLayout)
}

func unstamp(s string) time.Time {
	t, err := time.Parse(stampLayout, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func record(it item) (Record, error) {
	var r recordItem
	if err := attributevalue.UnmarshalMap(it, &r); err != nil {
		return Record{}, fmt.Errorf("decode task record: %w", err)
	}
	rec := Record{
		TaskID: task.ID(r.TaskID), Task: r.Task, Status: Status(r.Status), Step: r.Step, Error: failure(r.Error),
		TraceID: r.TraceID, MessageID: r.MessageID, ResultN: r.ResultN, Tokens: task.Tokens{Input: r.TokensIn, Output: r.TokensOut},
		Lease:       Lease{Owner: r.LeaseOwner, Until: unstamp(r.LeaseUntil), Fence: r.Fence},
		SubmittedAt: unstamp(r.SubmittedAt), UpdatedAt: unstamp(r.UpdatedAt), NextRetryAt: unstamp(r.NextRetryAt),
	}
	for _, a := range r.Attempts {
		rec.Attempts = append(rec.Attempts, Attempt{
			StartedAt: unstamp(a.StartedAt), EndedAt: unstamp(a.EndedAt), MessageID: a.MessageID, Step: a.Step, Error: failure(a.Error),
		})
	}
	for _, d := range r.Redrives {
		rec.Redrives = append(rec.Redrives, Redrive{
			MessageID: d.MessageID, Code: d.Code, At: unstamp(d.At), Fence: d.Fence, Under: d.Under, To: d.To, Try: d.Try,
		})
	}
	for _, st := range r.Steps {
		rec.Steps = append(rec.Steps, Step(st))
	}
	return rec, nil
}

func failure(f *failureItem) *task.Failure {
	if f == nil {
		return nil
	}
	return &task.Failure{Code: f.Code, Message: f.Message}
}

func (s *Store) expired(it item) bool {
	n, ok := it["expires_at"].(*types.AttributeValueMemberN)
	if !ok {
		return false
	}
	at, err := strconv.ParseInt(n.Value, 10, 64)
	return err == nil && at <= s.now().Unix()
}
