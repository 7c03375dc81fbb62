package emulator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/topology"
)

// queue is a queue that exists.
type queue struct{ name, url, arn string }

// taskQueue is a queue with its dead-letter queue.
type taskQueue struct {
	topology.TaskQueue
	main, dead queue
}

// createQueues makes both queues of q, or brings those that are there up to date.
func createQueues(ctx context.Context, client *sqs.Client, q topology.TaskQueue) (taskQueue, error) {
	t := taskQueue{TaskQueue: q}
	var err error
	if t.dead, err = createQueue(ctx, client, q.DeadLetterName(), q.DeadLetter, nil); err != nil {
		return t, err
	}
	redrive := map[string]string{
		"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, t.dead.arn, q.MaxReceiveCount),
	}
	if t.main, err = createQueue(ctx, client, q.QueueName(), q.Queue, redrive); err != nil {
		return t, err
	}
	allow := fmt.Sprintf(`{"redrivePermission":"byQueue","sourceQueueArns":[%q]}`, t.main.arn)
	_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{
		QueueUrl: &t.dead.url, Attributes: map[string]string{"RedriveAllowPolicy": allow, "RedrivePolicy": ""},
	})
	return t, wrap(err, "set up queue %s", t.dead.name)
}

func createQueue(ctx context.Context, client *sqs.Client, name string, q topology.Queue, more map[string]string) (queue, error) {
	attributes := queueAttributes(q)
	for k, v := range more {
		attributes[k] = v
	}
	url, err := existing(ctx, client, name)
	switch {
	case err != nil:
		return queue{}, err
	case url != "":
		delete(attributes, "FifoQueue") // fixed for a queue's life
		_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes})
	default:
		var out *sqs.CreateQueueOutput
		if out, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes}); err == nil {
			url = aws.ToString(out.QueueUrl)
		}
	}
	if err != nil {
		return queue{}, fmt.Errorf("set up queue %s: %w", name, err)
	}
	out, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return queue{}, fmt.Errorf("set up queue %s: %w", name, err)
	}
	return queue{name: name, url: url, arn: out.Attributes["QueueArn"]}, nil
}

// existing is the URL of a queue, "" when there is none.
func existing(ctx context.Context, client *sqs.Client, name string) (string, error) {
	out, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	var absent *sqstypes.QueueDoesNotExist
	if errors.As(err, &absent) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for queue %s: %w", name, err)
	}
	return aws.ToString(out.QueueUrl), nil
}

// visible is how many messages of a queue can be received now.
func (c *Chain) visible(ctx context.Context, q queue) (int, error) {
	name := sqstypes.QueueAttributeNameApproximateNumberOfMessages
	out, err := c.sqsClient.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []sqstypes.QueueAttributeName{name}})
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out.Attributes[string(name)])
}

func queueAttributes(q topology.Queue) map[string]string {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	attributes := map[string]string{
		"VisibilityTimeout":             seconds(q.Visibility),
		"MessageRetentionPeriod":        seconds(q.Retention),
		"ReceiveMessageWaitTimeSeconds": seconds(q.ReceiveWait),
		"SqsManagedSseEnabled":          "true",
	}
	if q.FIFO {
		attributes["FifoQueue"] = "true"
		attributes["ContentBasedDeduplication"] = "true"
		attributes["DeduplicationScope"] = "messageGroup"
		attributes["FifoThroughputLimit"] = "perMessageGroupId"
	}
	return attributes
}

// createTable makes the table, unless it is there.
func createTable(ctx context.Context, client *dynamodb.Client, name string) error {
	_, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	var absent *ddbtypes.ResourceNotFoundException
	if !errors.As(err, &absent) {
		return wrap(err, "look for table %s", name)
	}
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &name,
		BillingMode: ddbtypes.BillingModePayPerRequest,
		// As deployed: it outlives mistakes.
		DeletionProtectionEnabled: aws.Bool(true),
		KeySchema: []ddbtypes.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: ddbtypes.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: ddbtypes.KeyTypeRange},
		},
		AttributeDefinitions: []ddbtypes.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: ddbtypes.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: ddbtypes.ScalarAttributeTypeS},
		},
	})
	if err != nil {
		return fmt.Errorf("create table %s: %w", name, err)
	}
	err = dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	}).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, time.Minute)
	if err != nil {
		return fmt.Errorf("wait for table %s: %w", name, err)
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &name,
		TimeToLiveSpecification: &ddbtypes.TimeToLiveSpecification{AttributeName: aws.String("expires_at"), Enabled: aws.Bool(true)},
	})
	return wrap(err, "set time to live of table %s", name)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
