package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

// Function delivers some batches twice: SQS and Lambda promise at least once.
func (i *Injector) Function(next mapping.Invoker) mapping.Invoker {
	if i == nil {
		return next
	}
	return function{i, next}
}

type function struct {
	*Injector
	next mapping.Invoker
}

// Invoke answers what the first of the two deliveries answers.
func (f function) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	key, task := about(payload)
	dice, twice := f.draw(Duplicate, key)
	if !twice {
		return f.next.Invoke(ctx, payload)
	}
	if dice.IntN(2) == 0 {
		f.report(Duplicate, Injection{Task: task, What: "one after the other"})
		result, err := f.next.Invoke(ctx, payload)
		if err == nil {
			_, _ = f.next.Invoke(ctx, payload) // the first answer counts
		}
		return result, err
	}
	f.report(Duplicate, Injection{Task: task, What: "side by side"})
	var both errgroup.Group
	both.Go(func() error {
		_, _ = f.next.Invoke(ctx, payload)
		return nil
	})
	result, err := f.next.Invoke(ctx, payload)
	_ = both.Wait()
	return result, err
}

// about names a batch after its first message's content, which is the same at each run, and gives its task if there is
// but one.
func about(payload []byte) (key, task string) {
	var event struct {
		Records []struct {
			Body              string                                  `json:"body"`
			MessageAttributes map[string]struct{ StringValue string } `json:"messageAttributes"`
		}
	}
	if json.Unmarshal(payload, &event) != nil || len(event.Records) == 0 {
		return "", ""
	}
	if len(event.Records) == 1 {
		task = event.Records[0].MessageAttributes["task_id"].StringValue
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(event.Records[0].Body)) // cannot fail
	return fmt.Sprintf("batch %x", h.Sum64()), task
}

// Queue lets some of a mapping's calls fail.
func (i *Injector) Queue(next mapping.SQSAPI) mapping.SQSAPI {
	if i == nil {
		return next
	}
	return queue{next, i}
}

type queue struct {
	mapping.SQSAPI
	*Injector
}

var errInjected = errors.New("injected: SQS answers 500")

func (q queue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if q.Strike(SQS, "ReceiveMessage "+aws.ToString(in.QueueUrl), Injection{What: "ReceiveMessage"}) {
		return nil, errInjected
	}
	return q.SQSAPI.ReceiveMessage(ctx, in, opts...)
}

func (q queue) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	key := "DeleteMessageBatch " + aws.ToString(in.QueueUrl)
	if q.Strike(SQS, key, Injection{What: "DeleteMessageBatch"}) {
		return nil, errInjected
	}
	if q.Strike(LostDelete, key, Injection{What: "DeleteMessageBatch"}) {
		out := &sqs.DeleteMessageBatchOutput{}
		for _, e := range in.Entries {
			out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
		}
		return out, nil
	}
	if !q.Strike(Partial, key, Injection{What: "DeleteMessageBatch"}) {
		return q.SQSAPI.DeleteMessageBatch(ctx, in, opts...)
	}
	// Every other entry is refused, the first among them.
	out := &sqs.DeleteMessageBatchOutput{}
	var rest []types.DeleteMessageBatchRequestEntry
	for n, e := range in.Entries {
		if n%2 == 0 {
			out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("InternalError"), Message: aws.String("injected")})
		} else {
			rest = append(rest, e)
		}
	}
	if len(rest) == 0 {
		return out, nil
	}
	done, err := q.SQSAPI.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: in.QueueUrl, Entries: rest}, opts...)
	if err != nil {
		return nil, err
	}
	done.Failed = append(done.Failed, out.Failed...)
	return done, nil
}

// Action takes some of an alarm's events twice: Lambda's asynchronous invocation promises at least once.
func (i *Injector) Action(next alarm.Action) alarm.Action {
	if i == nil {
		return next
	}
	return func(payload []byte) error {
		if i.Strike(Alarm, "alarm", Injection{What: "alarm event"}) {
			if err := next(payload); err != nil {
				return err
			}
		}
		return next(payload)
	}
}
