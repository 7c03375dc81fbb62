// Command dlqalarm is the Lambda function that looks into the dead-letter queues and tells people what lies there.
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/agent"
	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/config"
	"agentworker/internal/dlqalarm"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

func main() {
	h, err := newHandler()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dlqalarm:", err)
		os.Exit(1)
	}
	lambda.Start(h.Handle)
}

func newHandler() (*dlqalarm.Handler, error) {
	cfg, err := config.Load[config.DLQAlarm]()
	if err != nil {
		return nil, err
	}
	aws, err := awsclient.Load()
	if err != nil {
		return nil, err
	}
	// Looking reads a message's task and runs nothing, so that the types need no parts.
	types, err := task.NewRegistry(agent.Types(agent.Config{})...)
	if err != nil {
		return nil, err
	}
	return dlqalarm.New(dlqalarm.Config{
		Queues:   []dlqalarm.Queue{{URL: cfg.DLQURL, Alarm: cfg.DLQAlarm}, {URL: cfg.OrderedDLQURL, Alarm: cfg.OrderedDLQAlarm}},
		Sources:  []string{cfg.QueueURL, cfg.OrderedQueueURL},
		Tasks:    types.AllowTopics(cfg.AllowedTopics...),
		Store:    checkpoint.New(dynamodb.NewFromConfig(aws), cfg.Table, checkpoint.Options{Retention: cfg.RecordRetention}),
		SQS:      sqs.NewFromConfig(aws),
		Topic:    sns.NewFromConfig(aws),
		TopicARN: cfg.TopicARN,
		Metrics:  telemetry.NewMetrics(cfg.MetricsNamespace, os.Stdout),
		Logger:   telemetry.NewLogger(),
	}), nil
}
