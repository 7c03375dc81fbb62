package httpapi

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// maxMessageBytes is what one message can carry, its attributes' names, types and values included.
// Source: Amazon SQS Developer Guide, "Amazon SQS message quotas".
const maxMessageBytes = 1 << 20

// message is the task as it goes onto its queue.
func (a *api) message(m task.Message, d delivery) (*sqs.SendMessageInput, error) {
	body, err := m.Body()
	if err != nil {
		return nil, err
	}
	in := &sqs.SendMessageInput{
		QueueUrl:    aws.String(a.QueueURL),
		MessageBody: aws.String(string(body)),
		// On the standard queue a group keeps one busy thread from crowding out the others.
		// Source: Amazon SQS Developer Guide, "Amazon SQS fair queues".
		MessageGroupId: aws.String(m.Thread),
		MessageAttributes: map[string]types.MessageAttributeValue{
			task.AttributeTask:     attribute("String", m.Task),
			task.AttributeThread:   attribute("String", m.Thread),
			task.AttributeTaskID:   attribute("String", string(m.ID)),
			task.AttributePriority: attribute("Number", strconv.Itoa(d.priority)),
		},
		DelaySeconds: int32(d.delaySeconds), //nolint:gosec // at most 900
	}
	if d.ordered {
		in.QueueUrl = aws.String(a.OrderedQueueURL)
		in.MessageDeduplicationId = aws.String(string(m.ID))
	}
	return in, nil
}

func attribute(dataType, value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(dataType), StringValue: aws.String(value)}
}

// checkSize refuses what SQS would refuse, before anything is recorded.
func (a *api) checkSize(m task.Message, d delivery) error {
	in, err := a.message(m, d)
	if err != nil {
		return err
	}
	size := len(*in.MessageBody)
	for name, value := range in.MessageAttributes {
		size += len(name) + len(*value.DataType) + len(*value.StringValue)
	}
	if size > maxMessageBytes {
		return tooLarge("The task makes a message of %d bytes; %d fit.", size, maxMessageBytes)
	}
	return nil
}

// send puts the message on its queue and gives its message id. It ends early enough for the request to
// note a failure and to answer.
func (a *api) send(ctx context.Context, m task.Message, d delivery) (messageID string, err error) {
	in, err := a.message(m, d)
	if err != nil {
		return "", err
	}
	if header := telemetry.TraceHeader(ctx); telemetry.TraceRoot(header) != "" {
		// It does not count towards the message's size.
		// Source: Amazon SQS Developer Guide, "Amazon SQS message metadata", message system attributes.
		trace := types.MessageSystemAttributeValue{DataType: aws.String("String"), StringValue: &header}
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): trace}
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		left := time.Until(deadline)
		ctx, cancel = context.WithTimeout(ctx, left-min(noteTime, left/4))
		defer cancel()
	}
	out, err := a.Queue.SendMessage(ctx, in)
	if err != nil {
		return "", fmt.Errorf("send task %s: %w", m.ID, err)
	}
	return aws.ToString(out.MessageId), nil
}
