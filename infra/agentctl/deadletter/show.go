package deadletter

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Sheet is a dead letter with the record of its task.
type Sheet struct {
	Queue      string
	MessageID  string
	SentAt     time.Time // zero: unknown
	TaskID     task.ID
	Type       string // "": not a registered type
	Code       string // why it lies there, as a look shows it
	Reason     string
	Body       string
	System     map[string]string                      // SQS's own attributes of the message
	Attributes map[string]types.MessageAttributeValue // the sender's
	Record     checkpoint.Record
}

// Show finds the dead letters of a message id or a task id. There may be several of a task; none is no error.
func (q *Queue) Show(ctx context.Context, id string) ([]Sheet, error) {
	var mu sync.Mutex
	var found []Sheet
	err := q.tour(ctx, 0, 0, func(ctx context.Context, _ int, m types.Message) (verdict, error) {
		letter, rec, err := q.judge(ctx, m, q.Store.AsDeadLettered)
		if letter.MessageID != id && string(letter.ID) != id {
			return stays, nil
		}
		if err != nil {
			return stays, err
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, Sheet{
			Queue: q.Name(), MessageID: letter.MessageID, SentAt: letter.SentAt, TaskID: letter.ID, Type: letter.Type,
			Code: letter.Code, Reason: letter.Reason, Body: aws.ToString(m.Body),
			System: m.Attributes, Attributes: m.MessageAttributes, Record: rec,
		})
		if letter.MessageID == id {
			return stays, errEnough
		}
		return stays, nil
	})
	return found, err
}
