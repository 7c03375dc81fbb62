package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// read reads the table and the dead-letter queues.
func (a *account) read(ctx context.Context) error {
	byID, byMessage := map[task.ID]*job{}, map[string]*job{}
	for _, j := range a.jobs {
		if j.id != "" {
			byID[j.id] = j
		}
		if j.messageID != "" {
			byMessage[j.messageID] = j
		}
	}
	threads, err := a.threads(ctx)
	if err != nil {
		return err
	}
	for _, thread := range threads {
		if err := a.readThread(ctx, thread, byID, byMessage); err != nil {
			return err
		}
	}
	for _, q := range []string{a.stack.Tasks.DeadLetterName(), a.stack.Ordered.DeadLetterName()} {
		if err := a.readLetters(ctx, q, byID, byMessage); err != nil {
			return err
		}
	}
	return nil
}

func (a *account) store() *checkpoint.Store {
	return checkpoint.New(a.dynamodb, a.stack.TableName, checkpoint.Options{})
}

// threads are the ids of all threads in the table.
func (a *account) threads(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	pages := dynamodb.NewScanPaginator(a.dynamodb, &dynamodb.ScanInput{
		TableName: &a.stack.TableName, ProjectionExpression: aws.String("pk"), ConsistentRead: aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, it := range page.Items {
			if pk, ok := it["pk"].(*ddbtypes.AttributeValueMemberS); ok {
				if thread, ok := strings.CutPrefix(pk.Value, "thread#"); ok {
					found[thread] = true
				}
			}
		}
	}
	var threads []string
	for thread := range found {
		threads = append(threads, thread)
	}
	slices.Sort(threads)
	return threads, nil
}

func (a *account) readThread(ctx context.Context, thread string, byID map[task.ID]*job, byMessage map[string]*job) error {
	const most = 500
	store := a.store()
	for next := ""; ; {
		var records []checkpoint.Record
		var err error
		if records, next, err = store.History(ctx, thread, next, most); err != nil {
			return err
		}
		for _, r := range records {
			j := byID[r.TaskID]
			if j == nil {
				j = jobOfMessages(r, byMessage)
			}
			if j == nil {
				a.doubled("task %s is nobody's: it is %s %s", r.TaskID, r.Status, reason(r.Error))
				continue
			}
			a.records[j] = append(a.records[j], r)
		}
		if next == "" {
			break
		}
	}
	var list []checkpoint.Checkpoint
	for upTo := uint64(0); ; {
		page, err := store.Latest(ctx, thread, upTo, most)
		if err != nil {
			return err
		}
		list = append(list, page...)
		if len(page) == 0 || page[len(page)-1].N <= 1 {
			break
		}
		upTo = page[len(page)-1].N - 1
	}
	slices.Reverse(list)
	a.checkpoints[thread] = list
	return nil
}

func jobOfMessages(r checkpoint.Record, byMessage map[string]*job) *job {
	if j := byMessage[r.MessageID]; j != nil {
		return j
	}
	for _, line := range r.Attempts {
		if j := byMessage[line.MessageID]; j != nil {
			return j
		}
	}
	return nil
}

// readLetters takes all messages out of a dead-letter queue, some of which dlqalarm may be looking at. They are deleted, since a
// message in hand would keep the others of its group from being received.
func (a *account) readLetters(ctx context.Context, name string, byID map[task.ID]*job, byMessage map[string]*job) error {
	url, err := a.queueURL(ctx, name)
	if err != nil {
		return err
	}
	total, err := a.depth(ctx, url)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for empty := 0; len(seen) < total && empty < 20; {
		out, err := a.client.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, VisibilityTimeout: 3600, WaitTimeSeconds: 10,
			MessageAttributeNames:       []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			return err
		}
		if len(out.Messages) == 0 {
			empty++
		}
		for _, m := range out.Messages {
			seen[aws.ToString(m.MessageId)] = true
			if _, err := a.client.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return err
			}
			j := byMessage[aws.ToString(m.MessageId)]
			if id := m.MessageAttributes[task.AttributeTaskID].StringValue; j == nil && id != nil {
				j = byID[task.ID(*id)]
			}
			if j == nil {
				a.broken("a dead letter in %s is nobody's: %s", name, aws.ToString(m.Body))
				continue
			}
			a.letters[j]++
		}
	}
	if len(seen) < total {
		return fmt.Errorf("%d of the %d messages in %s cannot be received", total-len(seen), total, name)
	}
	return nil
}
