package mapping

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// entriesPerCall is the most that a batch call of SQS takes.
	entriesPerCall = 10
	// deleteAttempts is how often a message is tried to be deleted before it is left to come back.
	deleteAttempts = 5
	// releaseTime bounds the release of messages when the mapping stops; they come back by themselves otherwise.
	releaseTime = 5 * time.Second
	// deleteTime bounds the attempts at ten messages.
	deleteTime = 20 * time.Second
)

// delete deletes the messages by the handles of this very receive. What SQS does not delete is tried again and then left:
// it comes back after its visibility timeout, the batch has not failed for it.
func (m *Mapping) delete(ctx context.Context, messages []message) (deleted int, failed []string) {
	for chunk := range slices.Chunk(messages, entriesPerCall) {
		left := m.deleteChunk(ctx, chunk)
		deleted += len(chunk) - len(left)
		failed = append(failed, ids(left)...)
	}
	return deleted, failed
}

func (m *Mapping) deleteChunk(ctx context.Context, chunk []message) (left []message) {
	// What the function finished is deleted also when the mapping has no more time for invocations.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTime)
	defer cancel()
	pause := newBackOff()
	var final []message // SQS says that it is no use
	for attempt := 1; ; attempt++ {
		entries := make([]types.DeleteMessageBatchRequestEntry, len(chunk))
		for i, msg := range chunk {
			entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &msg.handle}
		}
		out, err := m.config.SQS.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &m.config.QueueURL, Entries: entries})
		if err != nil {
			m.config.Logger.Warn("delete failed", "queue", m.config.QueueARN, "messages", len(chunk), "attempt", attempt, "error", err)
		} else {
			failed := map[string]types.BatchResultErrorEntry{}
			for _, entry := range out.Failed {
				failed[aws.ToString(entry.Id)] = entry
			}
			var again []message
			for i, msg := range chunk {
				id := strconv.Itoa(i)
				deleted := func(e types.DeleteMessageBatchResultEntry) bool { return aws.ToString(e.Id) == id }
				entry, said := failed[id]
				switch {
				case !said && slices.ContainsFunc(out.Successful, deleted):
					continue
				case said && entry.SenderFault:
					final = append(final, msg)
				default: // also an entry of which the answer says nothing
					again = append(again, msg)
				}
				m.config.Logger.Warn("message not deleted", "queue", m.config.QueueARN, "message_id", msg.id, "attempt", attempt,
					"code", aws.ToString(entry.Code), "error", aws.ToString(entry.Message))
			}
			chunk = again
		}
		if len(chunk) == 0 || attempt == deleteAttempts || !sleep(ctx, pause.NextBackOff()) {
			return append(final, chunk...)
		}
	}
}

// release makes messages visible at once. It works also when ctx has ended.
func (m *Mapping) release(ctx context.Context, messages []message) {
	if len(messages) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	for chunk := range slices.Chunk(messages, entriesPerCall) {
		entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(chunk))
		for i, msg := range chunk {
			entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &msg.handle, VisibilityTimeout: 0}
		}
		out, err := m.config.SQS.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &m.config.QueueURL, Entries: entries})
		failed := len(chunk)
		if err == nil {
			failed -= len(out.Successful)
		}
		if failed <= 0 {
			continue
		}
		m.config.Logger.Warn("messages not released, they come back after their visibility timeout", "queue", m.config.QueueARN, "messages", failed, "error", err)
	}
}
