package main

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/telemetry"
)

// DashboardProps describes the dashboard.
type DashboardProps struct {
	Settings       Settings
	Tasks, Ordered *TaskQueue
	Worker         *Worker
	API            awsapigatewayv2.HttpApi
	Functions      []*Function
	Alarms         *Alarms
}

const dashboardPeriod = 5 * time.Minute

// NewDashboard makes a dashboard of five rows: is it healthy, how slow is it, how much is there, what fails, and all that the
// functions have logged of one task, whose id is typed in.
func NewDashboard(scope constructs.Construct, id string, props DashboardProps) awscloudwatch.Dashboard {
	d := awscloudwatch.NewDashboard(scope, &id, &awscloudwatch.DashboardProps{Variables: &[]awscloudwatch.IVariable{
		awscloudwatch.NewDashboardVariable(&awscloudwatch.DashboardVariableOptions{
			Id: jsii.String("task"), Label: jsii.String("Task id"), Value: jsii.String(anyTask), DefaultValue: awscloudwatch.DefaultValue_Value(jsii.String(anyTask)),
			Type: awscloudwatch.VariableType_PATTERN, InputType: awscloudwatch.VariableInputType_INPUT, Visible: jsii.Bool(true),
		}),
	}})
	metric := func(name telemetry.Name, stat string) awscloudwatch.IMetric {
		return own(props.Settings.Topology, name, stat, dashboardPeriod)
	}
	labelled := func(m awscloudwatch.Metric, label string) awscloudwatch.IMetric {
		return m.With(&awscloudwatch.MetricOptions{Label: &label})
	}
	depth := func(q *TaskQueue, label string) awscloudwatch.IMetric {
		return labelled(q.Queue.MetricApproximateNumberOfMessagesVisible(statistic("Maximum", time.Minute)), label)
	}
	dead := func(q *TaskQueue, label string) awscloudwatch.IMetric {
		return labelled(q.DeadLetter.MetricApproximateNumberOfMessagesVisible(statistic("Maximum", time.Minute)), label)
	}
	age := func(q *TaskQueue, label string) awscloudwatch.IMetric {
		return labelled(q.Queue.MetricApproximateAgeOfOldestMessage(statistic("Maximum", time.Minute)), label)
	}
	sent := func(q *TaskQueue, label string) awscloudwatch.IMetric {
		return labelled(q.Queue.MetricNumberOfMessagesSent(statistic("Sum", dashboardPeriod)), label)
	}
	worker := props.Worker.Lambda
	var alarms []interfacesawscloudwatch.IAlarmRef
	for _, a := range props.Alarms.All {
		alarms = append(alarms, a)
	}

	d.AddWidgets(awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
		Title: jsii.String("Is it healthy?"), Alarms: &alarms, Width: jsii.Number(24), Height: jsii.Number(3),
	}))
	d.AddWidgets(
		graph("How slow? From sent to done (ms)", metric(telemetry.EndToEnd, "p50"), metric(telemetry.EndToEnd, "p99")),
		graph("Step (ms)", metric(telemetry.StepDuration, "p50"), metric(telemetry.StepDuration, "p99")),
		graph("Oldest message (s)", age(props.Tasks, "tasks"), age(props.Ordered, "ordered")),
		graph("API latency (ms)", props.API.MetricLatency(statistic("p50", dashboardPeriod)), props.API.MetricLatency(statistic("p99", dashboardPeriod))),
	)
	d.AddWidgets(
		graph("How much? Submitted", sent(props.Tasks, "tasks"), sent(props.Ordered, "ordered")),
		graph("Waiting", depth(props.Tasks, "tasks"), depth(props.Ordered, "ordered")),
		graph("Done", metric(telemetry.TasksSucceeded, "Sum")),
		graph("Workers at once", worker.Metric(jsii.String("ConcurrentExecutions"), statistic("Maximum", time.Minute))),
	)
	d.AddWidgets(
		graph("What fails? Tasks", metric(telemetry.TasksFailed, "Sum"), metric(telemetry.TasksRetried, "Sum"), metric(telemetry.DeadlineHandedBack, "Sum")),
		graph("Dead letters", dead(props.Tasks, "tasks"), dead(props.Ordered, "ordered"), metric(telemetry.WillDeadLetter, "Sum")),
		graph("Worker", worker.MetricErrors(statistic("Sum", dashboardPeriod)), worker.MetricThrottles(statistic("Sum", dashboardPeriod))),
		graph("API", props.API.MetricServerError(statistic("Sum", dashboardPeriod)), props.API.MetricClientError(statistic("Sum", dashboardPeriod))),
	)
	var logs []*string
	for _, f := range props.Functions {
		logs = append(logs, f.Logs.LogGroupName())
	}
	d.AddWidgets(awscloudwatch.NewLogQueryWidget(&awscloudwatch.LogQueryWidgetProps{
		Title: jsii.String("What happened to the task?"), LogGroupNames: &logs, QueryString: jsii.String(taskQuery(anyTask)),
		View: awscloudwatch.LogQueryVisualizationType_TABLE, Width: jsii.Number(24), Height: jsii.Number(8),
	}))
	return d
}

// anyTask stands in the dashboard where the id of a task is to be typed in.
const anyTask = "TASK_ID"

// taskQuery asks Logs Insights for all that was logged of a task, by submit, by each of its attempts, and by dlqalarm.
func taskQuery(id string) string {
	return "fields @timestamp, level, message, status, code, step, attempt, receive, trace_id, requestId, @log\n" +
		"| filter task_id = '" + id + "' or task_ids like '" + id + "'\n" +
		"| sort @timestamp\n" +
		"| limit 1000"
}

func graph(title string, metrics ...awscloudwatch.IMetric) awscloudwatch.GraphWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: &title, Left: &metrics, Width: jsii.Number(6)})
}
