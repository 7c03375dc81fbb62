package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdadestinations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/config"
	"agentworker/internal/topology"
)

// DLQAlarmProps describes a [DLQAlarm].
type DLQAlarmProps struct {
	Settings       Settings
	Table          awsdynamodb.ITable
	Tasks, Ordered *TaskQueue
	Topic          awssns.ITopic
}

// DLQAlarm is the function that looks into the dead-letter queues: when an alarm invokes it, and by a schedule, which
// catches what an alarm cannot see. An idle queue's metrics sleep, and a second message does not change an alarm's state.
type DLQAlarm struct{ *Function }

// NewDLQAlarm makes the function and its schedule.
func NewDLQAlarm(scope constructs.Construct, id string, props DLQAlarmProps) *DLQAlarm {
	t := props.Settings.Topology
	f := NewFunction(scope, id, FunctionProps{
		Settings: props.Settings, Function: t.DLQAlarm, Description: "Looks into the dead-letter queues and tells people what lies there",
		Environment: config.Variables(config.DLQAlarm{
			Table:            *props.Table.TableName(),
			QueueURL:         *props.Tasks.Queue.QueueUrl(),
			OrderedQueueURL:  *props.Ordered.Queue.QueueUrl(),
			DLQURL:           *props.Tasks.DeadLetter.QueueUrl(),
			OrderedDLQURL:    *props.Ordered.DeadLetter.QueueUrl(),
			TopicARN:         *props.Topic.TopicArn(),
			AllowedTopics:    props.Settings.Worker.AllowedTopics,
			RecordRetention:  t.RecordRetention,
			MetricsNamespace: t.MetricsNamespace,
			DLQAlarm:         props.Settings.AlarmName(t.Tasks.DeadLetterAlarmName()),
			OrderedDLQAlarm:  props.Settings.AlarmName(t.Ordered.DeadLetterAlarmName()),
		}),
	})
	access := topology.DLQAlarmAccess()
	f.Allow(props.Table.TableArn(), access.Table...)
	for _, q := range []*TaskQueue{props.Tasks, props.Ordered} {
		f.Allow(q.DeadLetter.QueueArn(), access.DeadLetters...)
		f.Allow(q.Queue.QueueArn(), access.Queues...)
	}
	f.Allow(props.Topic.TopicArn(), access.Topic...)

	// Both alarms and schedule invoke asynchronously. What fails three times is told on the topic as well.
	f.Lambda.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
		OnFailure: awslambdadestinations.NewSnsDestination(props.Topic), RetryAttempts: jsii.Number(2),
	})
	awsevents.NewRule(f.scope, jsii.String("Sweep"), &awsevents.RuleProps{
		Description: jsii.String("Has the dead-letter queues looked into without an alarm"),
		Schedule:    awsevents.Schedule_Rate(seconds(t.SweepInterval)),
		Targets:     &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(f.Lambda, nil)},
	})
	return &DLQAlarm{f}
}

// NewTopic makes the topic that people subscribe to.
func NewTopic(scope constructs.Construct, id, email string) awssns.Topic {
	topic := awssns.NewTopic(scope, &id, &awssns.TopicProps{
		DisplayName: jsii.String("agentworker dead letters and alarms"), EnforceSSL: jsii.Bool(true),
	})
	pin(topic, "Topic") // people have subscribed to it
	// A topic with a policy of its own loses the default one, by which the account's alarms may publish.
	topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("AlarmsPublish"),
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("cloudwatch.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sns:Publish"),
		Resources:  &[]*string{topic.TopicArn()},
		Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Aws_ACCOUNT_ID()}},
	}))
	if email != "" {
		topic.AddSubscription(awssnssubscriptions.NewEmailSubscription(&email, nil))
	}
	return topic
}
