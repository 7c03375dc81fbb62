package main

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/topology"
)

// Stack is the whole system on AWS.
type Stack struct {
	CDK            awscdk.Stack
	Table          awsdynamodb.Table
	Topic          awssns.Topic
	Tasks, Ordered *TaskQueue
	Submit         *Submit
	Worker         *Worker
	DLQAlarm       *DLQAlarm
	Alarms         *Alarms
	Dashboard      awscloudwatch.Dashboard
}

// StackName is the stack's name.
func (s Settings) StackName() string { return topology.StackName(s.Stage) }

// NewStack is the list of parts.
func NewStack(scope constructs.Construct, s Settings) *Stack {
	cdk := awscdk.NewStack(scope, jsii.String(s.StackName()), &awscdk.StackProps{
		Description: jsii.String("Work for an AI agent: queued, run, and never lost; stage " + s.Stage),
		Tags:        &map[string]*string{"app": jsii.String("agentworker"), "stage": &s.Stage},
	})
	stack := &Stack{CDK: cdk}
	stack.Table = NewTable(cdk, "Storage")
	stack.Topic = NewTopic(cdk, "Notifications", s.AlarmEmail)
	stack.Tasks = NewTaskQueue(cdk, "Tasks", TaskQueueProps{TaskQueue: s.Topology.Tasks, Stage: s.Stage, LogicalID: "Tasks"})
	stack.Ordered = NewTaskQueue(cdk, "Ordered", TaskQueueProps{TaskQueue: s.Topology.Ordered, Stage: s.Stage, LogicalID: "Ordered"})

	stack.Submit = NewSubmit(cdk, "Submit", SubmitProps{Settings: s, Table: stack.Table, Tasks: stack.Tasks, Ordered: stack.Ordered})
	stack.Worker = NewWorker(cdk, "Worker", WorkerProps{Settings: s, Table: stack.Table, Tasks: stack.Tasks, Ordered: stack.Ordered})
	stack.DLQAlarm = NewDLQAlarm(cdk, "DLQAlarm", DLQAlarmProps{
		Settings: s, Table: stack.Table, Tasks: stack.Tasks, Ordered: stack.Ordered, Topic: stack.Topic,
	})

	stack.Alarms = NewAlarms(cdk, "Alarms", AlarmsProps{
		Settings: s, Tasks: stack.Tasks, Ordered: stack.Ordered, Worker: stack.Worker, API: stack.Submit.API,
		DLQAlarm: stack.DLQAlarm, Topic: stack.Topic,
	})
	stack.Dashboard = NewDashboard(cdk, "Dashboard", DashboardProps{
		Settings: s, Tasks: stack.Tasks, Ordered: stack.Ordered, Worker: stack.Worker, API: stack.Submit.API, Alarms: stack.Alarms,
		Functions: []*Function{stack.Submit.Function, stack.Worker.Function, stack.DLQAlarm.Function},
	})
	stack.outputs(s)
	return stack
}

// outputs are what people paste.
func (s *Stack) outputs(settings Settings) {
	out := func(name, description, value string) {
		awscdk.NewCfnOutput(s.CDK, &name, &awscdk.CfnOutputProps{Description: &description, Value: &value})
	}
	api := *s.Submit.API.ApiEndpoint()
	out(topology.OutputAPIURL, "The HTTP API", api)
	out("AskCommand", "Ask a question", fmt.Sprintf(
		`curl %s'%s/agent/query' -H 'Content-Type: application/json' -d '{"question":"What is a dead-letter queue?"}'`,
		s.credentials(settings.Auth), api))
	out(topology.OutputTableName, "Threads, tasks and tickets", *s.Table.TableName())
	out(topology.OutputTopicARN, "Subscribe to be told of dead letters and alarms", *s.Topic.TopicArn())
	out(topology.OutputQueueURL, "The queue of independent tasks", *s.Tasks.Queue.QueueUrl())
	out(topology.OutputOrderedQueueURL, "The queue of ordered tasks", *s.Ordered.Queue.QueueUrl())
	out(topology.OutputDeadLetterURL, "Where independent tasks end that failed", *s.Tasks.DeadLetter.QueueUrl())
	out(topology.OutputOrderedDeadLetterURL, "Where ordered tasks end that failed", *s.Ordered.DeadLetter.QueueUrl())
	if topics := settings.Worker.AllowedTopics; len(topics) > 0 {
		out(topology.OutputAllowedTopics, "SNS topics whose notifications may hold tasks", strings.Join(topics, ","))
	}
	redrive := "aws sqs start-message-move-task --source-arn "
	out("RedriveCommand", "Moves the dead letters back, once their cause is mended", redrive+*s.Tasks.DeadLetter.QueueArn())
	out("OrderedRedriveCommand", "The same for ordered tasks", redrive+*s.Ordered.DeadLetter.QueueArn())
	out("LogsCommand", "Follows the worker's log", "aws logs tail --follow "+*s.Worker.Logs.LogGroupName())
	out("DashboardUrl", "Is it healthy, how slow, how much, what fails", fmt.Sprintf(
		"https://%s.console.aws.amazon.com/cloudwatch/home?region=%s#dashboards/dashboard/%s",
		*s.CDK.Region(), *s.CDK.Region(), *s.Dashboard.DashboardName()))
}

// credentials are curl's flags for a kind of authorization.
func (s *Stack) credentials(a Auth) string {
	switch a.Kind {
	case AuthIAM:
		return fmt.Sprintf(`--aws-sigv4 'aws:amz:%s:execute-api' --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H "X-Amz-Security-Token: $AWS_SESSION_TOKEN" `, *s.CDK.Region())
	case AuthJWT:
		return `-H "Authorization: Bearer $TOKEN" `
	}
	return ""
}
