package main

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/topology"
)

// TaskQueueProps describes a [TaskQueue].
type TaskQueueProps struct {
	TaskQueue topology.TaskQueue
	Stage     string
	// LogicalID is the prefix of both queues' logical ids, which never change.
	LogicalID string
}

// TaskQueue is a queue with its dead-letter queue. Both outlive the stack, with what lies in them.
type TaskQueue struct {
	scope constructs.Construct
	topology.TaskQueue
	Queue      awssqs.Queue
	DeadLetter awssqs.Queue
}

// NewTaskQueue makes both queues.
func NewTaskQueue(scope constructs.Construct, id string, props TaskQueueProps) *TaskQueue {
	q := &TaskQueue{scope: constructs.NewConstruct(scope, &id), TaskQueue: props.TaskQueue}
	name := q.uniqueName(props.Stage)

	dead := queueProps(props.TaskQueue.DeadLetter)
	dead.RedriveAllowPolicy = &awssqs.RedriveAllowPolicy{
		RedrivePermission: awssqs.RedrivePermission_BY_QUEUE,
		// By name, since each of the two queues would have to exist before the other.
		SourceQueues: &[]awssqs.IQueue{q.byName(name)},
	}
	q.DeadLetter = awssqs.NewQueue(q.scope, jsii.String("DeadLetterQueue"), dead)
	pin(q.DeadLetter, props.LogicalID+"DeadLetterQueue")

	main := queueProps(props.TaskQueue.Queue)
	main.QueueName = name
	main.DeadLetterQueue = &awssqs.DeadLetterQueue{
		Queue: q.DeadLetter, MaxReceiveCount: jsii.Number(props.TaskQueue.MaxReceiveCount),
	}
	q.Queue = awssqs.NewQueue(q.scope, jsii.String("Queue"), main)
	pin(q.Queue, props.LogicalID+"Queue")
	return q
}

// uniqueName has a part of the stack's own id in it: a queue that outlived its stack is not in the way of the next one.
func (q *TaskQueue) uniqueName(stage string) *string {
	suffix := ""
	if q.TaskQueue.Queue.FIFO {
		suffix = ".fifo"
	}
	return jsii.String(q.Name + "-" + stage + "-" + uniquePart() + suffix)
}

// uniquePart is a part of the stack's own id: another one in each deployment that begins anew.
func uniquePart() string {
	stackID := awscdk.Fn_Select(jsii.Number(2), awscdk.Fn_Split(jsii.String("/"), awscdk.Aws_STACK_ID(), nil))
	return *awscdk.Fn_Select(jsii.Number(0), awscdk.Fn_Split(jsii.String("-"), stackID, nil))
}

func (q *TaskQueue) byName(name *string) awssqs.IQueue {
	arn := awscdk.Stack_Of(q.scope).FormatArn(&awscdk.ArnComponents{Service: jsii.String("sqs"), Resource: name})
	return awssqs.Queue_FromQueueAttributes(q.scope, jsii.String("Source"), &awssqs.QueueAttributes{
		QueueArn: arn, Fifo: jsii.Bool(q.TaskQueue.Queue.FIFO),
	})
}

func queueProps(q topology.Queue) *awssqs.QueueProps {
	props := &awssqs.QueueProps{
		VisibilityTimeout:      seconds(q.Visibility),
		RetentionPeriod:        seconds(q.Retention),
		ReceiveMessageWaitTime: seconds(q.ReceiveWait),
		Encryption:             awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:             jsii.Bool(true),
		RemovalPolicy:          awscdk.RemovalPolicy_RETAIN,
	}
	if q.FIFO {
		// High throughput. Deduplication by content is for other people's producers; ours send an id.
		// Source: Amazon SQS Developer Guide, "High throughput for FIFO queues".
		props.Fifo = jsii.Bool(true)
		props.ContentBasedDeduplication = jsii.Bool(true)
		props.DeduplicationScope = awssqs.DeduplicationScope_MESSAGE_GROUP
		props.FifoThroughputLimit = awssqs.FifoThroughputLimit_PER_MESSAGE_GROUP_ID
	}
	return props
}

func seconds(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}
