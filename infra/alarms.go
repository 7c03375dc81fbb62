package main

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/telemetry"
	"agentworker/internal/topology"
)

// Names of the alarms beside those on the queues. Each is a heading in the README; see [Settings.AlarmName].
const (
	willDeadLetterAlarm = "will-dead-letter"
	workerErrorsAlarm   = "worker-errors"
	workerThrottleAlarm = "worker-throttles"
	workerDurationAlarm = "worker-duration"
	apiAlarm            = "api-5xx"
	dlqalarmErrorsAlarm = "dlqalarm-errors"
)

func ageAlarm(q topology.TaskQueue) string { return q.Name + "-age" }

// AlarmName is an alarm's name on AWS: its heading in the README behind the stage and a hyphen.
func (s Settings) AlarmName(heading string) string { return s.Stage + "-" + heading }

// AlarmsProps describes [Alarms].
type AlarmsProps struct {
	Settings       Settings
	Tasks, Ordered *TaskQueue
	Worker         *Worker
	API            awsapigatewayv2.HttpApi
	DLQAlarm       *DLQAlarm
	Topic          awssns.ITopic
}

// Alarms are all alarms of the stack. Those about dead letters have dlqalarm look, which tells the topic what it sees; the
// others tell the topic themselves. Each acts when it goes off and when it is over.
type Alarms struct {
	All []awscloudwatch.IAlarm
}

// NewAlarms makes them.
func NewAlarms(scope constructs.Construct, id string, props AlarmsProps) *Alarms {
	a, within := &Alarms{}, constructs.NewConstruct(scope, &id)
	look := awscloudwatchactions.NewLambdaAction(props.DLQAlarm.Lambda, &awscloudwatchactions.LambdaActionProps{UseUniquePermissionId: jsii.Bool(true)})
	tell := awscloudwatchactions.NewSnsAction(props.Topic)
	add := func(id, heading, description string, metric awscloudwatch.IMetric, threshold float64, action awscloudwatch.IAlarmAction) {
		alarm := awscloudwatch.NewAlarm(within, &id, &awscloudwatch.AlarmProps{
			AlarmName:          jsii.String(props.Settings.AlarmName(heading)),
			AlarmDescription:   jsii.String(description + " What to do: README, \"" + heading + "\"."),
			Metric:             metric,
			Threshold:          &threshold,
			ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
			EvaluationPeriods:  jsii.Number(1),
			// An idle queue or function has no metrics; that is no reason for an alarm.
			TreatMissingData: awscloudwatch.TreatMissingData_NOT_BREACHING,
		})
		alarm.AddAlarmAction(action)
		alarm.AddOkAction(action)
		a.All = append(a.All, alarm)
	}
	t := props.Settings.Topology

	for _, q := range []struct {
		*TaskQueue
		id string
	}{{props.Tasks, "Tasks"}, {props.Ordered, "Ordered"}} {
		// Visible messages only: a message that was moved into the queue is never counted as sent, and those in flight
		// are counted inexactly.
		// Source: Amazon SQS Developer Guide, "Available CloudWatch metrics for Amazon SQS".
		add(q.id+"Depth", q.DeadLetterAlarmName(), "Messages lie in the dead-letter queue.",
			q.DeadLetter.MetricApproximateNumberOfMessagesVisible(statistic("Maximum", t.AlarmPeriod)), 1, look)
		add(q.id+"Age", ageAlarm(q.TaskQueue.TaskQueue), "A message is older than all of its deliveries should take.",
			q.Queue.MetricApproximateAgeOfOldestMessage(statistic("Maximum", t.AlarmPeriod)), q.TaskQueue.TaskQueue.Patience().Seconds(), tell)
	}
	// The depth of a queue that was idle for hours may come a quarter of an hour late; the worker knows at once.
	add("WillDeadLetter", willDeadLetterAlarm, "The worker has given up a message.",
		own(t, telemetry.WillDeadLetter, "Sum", time.Minute), 1, look)
	worker := props.Worker.Lambda
	add("WorkerErrors", workerErrorsAlarm, "An invocation of the worker failed as a whole.", worker.MetricErrors(statistic("Sum", 5*time.Minute)), 1, tell)
	add("WorkerThrottles", workerThrottleAlarm, "Invocations of the worker were throttled.", worker.MetricThrottles(statistic("Sum", 5*time.Minute)), 1, tell)
	add("WorkerDuration", workerDurationAlarm,
		fmt.Sprintf("The worker takes nearly all of its %v.", t.Worker.Timeout),
		worker.MetricDuration(statistic("Maximum", 5*time.Minute)), float64(nearTimeout(t.Worker.Timeout).Milliseconds()), tell)
	add("Api5xx", apiAlarm, "The API answered with 5xx.", props.API.MetricServerError(statistic("Sum", 5*time.Minute)), 1, tell)
	add("DLQAlarmErrors", dlqalarmErrorsAlarm, "dlqalarm itself fails: dead letters may go unseen.",
		props.DLQAlarm.Lambda.MetricErrors(statistic("Sum", 5*time.Minute)), 1, tell)
	return a
}

// nearTimeout is nine tenths of a timeout.
func nearTimeout(d time.Duration) time.Duration { return d * 9 / 10 }

func statistic(name string, period time.Duration) *awscloudwatch.MetricOptions {
	return &awscloudwatch.MetricOptions{Statistic: &name, Period: seconds(period)}
}

// own is a metric that the functions write themselves, over all task types.
func own(t topology.Stack, name telemetry.Name, stat string, period time.Duration) awscloudwatch.Metric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: &t.MetricsNamespace, MetricName: jsii.String(string(name)), Statistic: &stat, Period: seconds(period),
	})
}
