package sqs

import (
	"time"

	"agentworker/internal/emulator/sqs/engine"
)

type handleRequest struct {
	QueueURL          string `json:"QueueUrl"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

type handleBatchRequest struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []handleEntry
}

type handleEntry struct {
	ID                string `json:"Id"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

func (c *call) deleteMessage(in handleRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	if in.ReceiptHandle == "" {
		return nothing{}, missing("ReceiptHandle")
	}
	return nothing{}, c.engine.Delete(name, in.ReceiptHandle)
}

func (c *call) deleteMessageBatch(in handleBatchRequest) (batchAnswer, error) {
	check := func(entry handleEntry) (string, *engine.Error) {
		if entry.ReceiptHandle == "" {
			return "", missing("ReceiptHandle")
		}
		return entry.ReceiptHandle, nil
	}
	return each(c, in, check, c.engine.DeleteBatch)
}

func (c *call) changeMessageVisibility(in handleRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	change, refused := changeOf(handleEntry{ReceiptHandle: in.ReceiptHandle, VisibilityTimeout: in.VisibilityTimeout})
	if refused != nil {
		return nothing{}, refused
	}
	return nothing{}, c.engine.ChangeVisibility(name, change)
}

func (c *call) changeMessageVisibilityBatch(in handleBatchRequest) (batchAnswer, error) {
	return each(c, in, changeOf, c.engine.ChangeVisibilityBatch)
}

func changeOf(entry handleEntry) (engine.Change, *engine.Error) {
	var none engine.Change
	if entry.ReceiptHandle == "" {
		return none, missing("ReceiptHandle")
	}
	if entry.VisibilityTimeout == nil {
		return none, missing("VisibilityTimeout")
	}
	if err := checkVisibility(*entry.VisibilityTimeout); err != nil {
		return none, err
	}
	return engine.Change{Handle: entry.ReceiptHandle, Timeout: time.Duration(*entry.VisibilityTimeout) * time.Second}, nil
}

// each checks the entries of a batch, runs those that are good together and says how each went.
func each[T any](
	c *call, in handleBatchRequest,
	check func(handleEntry) (T, *engine.Error), run func(queue string, good []T) ([]*engine.Error, error),
) (batchAnswer, error) {
	answer := batchAnswer{Successful: []idAnswer{}}
	name, err := c.batch(in.QueueURL, len(in.Entries), func(i int) string { return in.Entries[i].ID })
	if err != nil {
		return answer, err
	}
	outcome := make([]*engine.Error, len(in.Entries))
	var good []T
	var at []int // where in the request each good one stands
	for i, entry := range in.Entries {
		var checked T
		if checked, outcome[i] = check(entry); outcome[i] == nil {
			good, at = append(good, checked), append(at, i)
		}
	}
	results, err := run(name, good)
	if err != nil {
		return answer, err
	}
	for i, result := range results {
		outcome[at[i]] = result
	}
	for i, entry := range in.Entries {
		answer.add(entry.ID, outcome[i])
	}
	return answer, nil
}
