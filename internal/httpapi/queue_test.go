package httpapi_test

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"
)

const (
	standardURL = "http://sqs.invalid/000000000000/tasks"
	orderedURL  = "http://sqs.invalid/000000000000/tasks.fifo"
)

// queue refuses what SQS refuses, deduplicates as a FIFO queue does, and keeps what was sent.
type queue struct {
	mu     sync.Mutex
	sent   []*sqs.SendMessageInput
	ids    map[string]string // deduplication id → message id
	refuse func(ctx context.Context, in *sqs.SendMessageInput) error
}

func newQueue() *queue { return &queue{ids: map[string]string{}} }

var groupPattern = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]{1,128}$")

func (q *queue) SendMessage(ctx context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	q.mu.Lock()
	refuse := q.refuse
	q.mu.Unlock()
	if refuse != nil {
		if err := refuse(ctx, in); err != nil {
			return nil, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := check(in); err != nil {
		return nil, err
	}
	id := uuid.NewString()
	if dedup := aws.ToString(in.MessageDeduplicationId); dedup != "" {
		if first, again := q.ids[dedup]; again {
			return &sqs.SendMessageOutput{MessageId: aws.String(first)}, nil
		}
		q.ids[dedup] = id
	}
	q.sent = append(q.sent, in)
	return &sqs.SendMessageOutput{MessageId: aws.String(id)}, nil
}

func check(in *sqs.SendMessageInput) error {
	size := len(*in.MessageBody)
	for name, a := range in.MessageAttributes {
		size += len(name) + len(*a.DataType) + len(*a.StringValue)
		if *a.StringValue == "" {
			return fmt.Errorf("InvalidParameterValue: attribute %s is empty", name)
		}
	}
	ordered := *in.QueueUrl == orderedURL
	switch {
	case size > 1<<20:
		return fmt.Errorf("InvalidParameterValue: %d bytes", size)
	case !groupPattern.MatchString(aws.ToString(in.MessageGroupId)):
		return fmt.Errorf("InvalidParameterValue: MessageGroupId %q", aws.ToString(in.MessageGroupId))
	case ordered && in.DelaySeconds != 0:
		return fmt.Errorf("InvalidParameterValue: DelaySeconds %d on a FIFO queue", in.DelaySeconds)
	case ordered != (in.MessageDeduplicationId != nil):
		return fmt.Errorf("InvalidParameterValue: MessageDeduplicationId %q", aws.ToString(in.MessageDeduplicationId))
	case ordered && !groupPattern.MatchString(*in.MessageDeduplicationId):
		return fmt.Errorf("InvalidParameterValue: MessageDeduplicationId %q", *in.MessageDeduplicationId)
	case in.DelaySeconds < 0 || in.DelaySeconds > 900:
		return fmt.Errorf("InvalidParameterValue: DelaySeconds %d", in.DelaySeconds)
	case !utf8.ValidString(*in.MessageBody):
		return &types.InvalidMessageContents{}
	}
	for _, r := range *in.MessageBody {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return &types.InvalidMessageContents{}
		}
	}
	return nil
}

func (q *queue) fail(f func(ctx context.Context, in *sqs.SendMessageInput) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuse = f
}

func (q *queue) messages() []*sqs.SendMessageInput {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]*sqs.SendMessageInput(nil), q.sent...)
}
