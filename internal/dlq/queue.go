package dlq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// API is what is called of the SQS client.
type API interface {
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

// FIFOSuffix ends the names of FIFO queues, and of no others.
const FIFOSuffix = ".fifo"

// Name is the name of the queue with the URL.
func Name(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// IsFIFO says that the URL is a FIFO queue's.
func IsFIFO(url string) bool { return strings.HasSuffix(url, FIFOSuffix) }

// Depth is what SQS says of a queue. The counts are approximate, and may lag behind by a minute.
// Source: Amazon SQS API Reference, "GetQueueAttributes".
type Depth struct {
	ARN     string // "": unknown
	Visible int
	Hidden  int // in flight: received and neither deleted nor back
	Delayed int
	At      time.Time // when SQS answered by its own clock, whole seconds; zero: unknown
}

// Total is how many messages the queue holds.
func (d Depth) Total() int { return d.Visible + d.Hidden + d.Delayed }

// ReadDepth asks for a queue's ARN and depth. SQS goes on sending a queue's metrics only while it is used; this call
// counts. Source: Amazon SQS Developer Guide, "Monitoring Amazon SQS queues using CloudWatch".
func ReadDepth(ctx context.Context, api API, url string) (Depth, error) {
	out, err := api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url,
		AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameQueueArn,
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
			types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		},
	})
	if err != nil {
		return Depth{}, fmt.Errorf("read attributes of %s: %w", Name(url), err)
	}
	number := func(name types.QueueAttributeName) int {
		n, _ := strconv.Atoi(out.Attributes[string(name)]) // absent: 0
		return n
	}
	at, _ := awsmiddleware.GetServerTime(out.ResultMetadata)
	return Depth{
		At:      at,
		ARN:     out.Attributes[string(types.QueueAttributeNameQueueArn)],
		Visible: number(types.QueueAttributeNameApproximateNumberOfMessages),
		Hidden:  number(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
		Delayed: number(types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
	}, nil
}
