package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/config"
	"agentworker/internal/topology"
)

// WorkerProps describes a [Worker].
type WorkerProps struct {
	Settings       Settings
	Table          awsdynamodb.ITable
	Tasks, Ordered *TaskQueue
}

// Worker is the function that runs tasks, fed from both queues.
type Worker struct {
	*Function
	Mappings []awslambda.EventSourceMapping // of Tasks and Ordered
}

// NewWorker makes the function and its mappings.
func NewWorker(scope constructs.Construct, id string, props WorkerProps) *Worker {
	t := props.Settings.Topology
	c := props.Settings.Worker
	c.Table = *props.Table.TableName()
	c.QueueURL = *props.Tasks.Queue.QueueUrl()
	c.OrderedQueueURL = *props.Ordered.Queue.QueueUrl()
	c.Retries = t.Retries
	c.MaxReceiveCount = min(t.Tasks.MaxReceiveCount, t.Ordered.MaxReceiveCount)
	c.PartialBatch = t.Tasks.Mapping.ReportBatchItemFailures && t.Ordered.Mapping.ReportBatchItemFailures
	c.RecordRetention = t.RecordRetention
	c.MetricsNamespace = t.MetricsNamespace
	f := NewFunction(scope, id, FunctionProps{
		Settings: props.Settings, Function: t.Worker, Description: "Runs the tasks of both queues", Environment: config.Variables(c),
	})
	f.allowModel(c)
	access := topology.WorkerAccess()
	f.Allow(props.Table.TableArn(), access.Table...)
	w := &Worker{Function: f}
	for _, q := range []*TaskQueue{props.Tasks, props.Ordered} {
		f.Allow(q.Queue.QueueArn(), access.Queues...)
		q.acceptFrom(c.AllowedTopics)
		w.Mappings = append(w.Mappings, newMapping(q, f))
	}
	return w
}

// newMapping feeds a queue to a function. Nothing is filtered: what a filter leaves out is deleted unseen, and a task of
// an unknown type must end where people find it.
func newMapping(q *TaskQueue, f *Function) awslambda.EventSourceMapping {
	m := q.Mapping
	props := &awslambda.EventSourceMappingProps{
		EventSourceArn:          q.Queue.QueueArn(),
		Target:                  f.Lambda,
		BatchSize:               jsii.Number(m.BatchSize),
		ReportBatchItemFailures: jsii.Bool(m.ReportBatchItemFailures),
		MetricsConfig:           &awslambda.MetricsConfig{Metrics: &[]awslambda.MetricType{awslambda.MetricType_EVENT_COUNT}},
	}
	if m.BatchingWindow > 0 {
		props.MaxBatchingWindow = seconds(m.BatchingWindow)
	}
	if m.MaximumConcurrency > 0 {
		props.MaxConcurrency = jsii.Number(m.MaximumConcurrency)
	}
	if m.Pollers != (topology.Pollers{}) {
		props.ProvisionedPollerConfig = &awslambda.ProvisionedPollerConfig{
			MinimumPollers: jsii.Number(m.Pollers.Minimum), MaximumPollers: jsii.Number(m.Pollers.Maximum),
		}
	}
	return awslambda.NewEventSourceMapping(q.scope, jsii.String("Mapping"), props)
}
