package deadletter

import (
	"context"
	"crypto/md5" //nolint:gosec // SQS answers with MD5 sums
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// errNotSent says that SQS has certainly not taken the message.
var errNotSent = errors.New("not sent")

// errUnconfirmed says that the answer does not prove that SQS has taken the message as it is.
var errUnconfirmed = errors.New("the answer does not confirm the copy")

// send puts a copy of the dead letter on the tasks' queue, with the same body, attributes and group, and gives its message
// id. After an error that is not errNotSent there may be a copy, or none.
func (q *Queue) send(ctx context.Context, m types.Message) (copyID string, err error) {
	in := &sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: m.Body}
	if len(m.MessageAttributes) > 0 {
		in.MessageAttributes = m.MessageAttributes
	}
	if trace := m.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)]; trace != "" {
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): {DataType: aws.String("String"), StringValue: &trace},
		}
	}
	if g := group(m); g != "" {
		in.MessageGroupId = &g
	}
	if q.fifo() {
		in.MessageDeduplicationId = aws.String(deduplicationID(aws.ToString(m.MessageId)))
	}
	out, err := q.SQS.SendMessage(ctx, in, onlyRetryRefused)
	if err != nil {
		if refused(err) {
			err = fmt.Errorf("%w: %w", errNotSent, err)
		}
		return "", fmt.Errorf("send a copy of message %s: %w", aws.ToString(m.MessageId), err)
	}
	sum := md5.Sum([]byte(aws.ToString(m.Body))) //nolint:gosec // SQS answers with MD5 sums
	if aws.ToString(out.MessageId) == "" || aws.ToString(out.MD5OfMessageBody) != hex.EncodeToString(sum[:]) {
		return "", fmt.Errorf("send a copy of message %s: %w", aws.ToString(m.MessageId), errUnconfirmed)
	}
	return *out.MessageId, nil
}

// deduplicationID is the same whenever a dead letter is copied: for five minutes, also after the copy was deleted, SQS takes
// a second one for the first and answers with the first one's message id. It is another than that of the task's own
// submission, which may not be five minutes ago.
// Source: Amazon SQS Developer Guide, "Using the message deduplication ID in Amazon SQS".
func deduplicationID(messageID string) string { return "redrive-" + messageID }

// onlyRetryRefused keeps the SDK from repeating a send whose answer was lost: in a standard queue that makes two copies.
func onlyRetryRefused(o *sqs.Options) {
	o.Retryer = retry.NewStandard(func(so *retry.StandardOptions) {
		so.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			return aws.BoolTernary(throttled(err))
		})}
	})
}

func throttled(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains([]string{
		"RequestThrottled", "ThrottlingException", "Throttling", "AWS.SimpleQueueService.OverLimit", "OverLimit",
		"KmsThrottled", "KMS.ThrottlingException",
	}, api.ErrorCode())
}

// refused reports whether SQS has certainly not acted: it said so, or nobody was reached.
func refused(err error) bool {
	if throttled(err) {
		return true
	}
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		code := response.HTTPStatusCode()
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

func (q *Queue) remove(ctx context.Context, m types.Message) error {
	_, err := q.SQS.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &q.DeadLetterURL, ReceiptHandle: m.ReceiptHandle})
	if err != nil {
		return fmt.Errorf("delete message %s from %s: %w", aws.ToString(m.MessageId), q.Name(), err)
	}
	return nil
}
