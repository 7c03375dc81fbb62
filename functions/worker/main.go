// Command worker is the Lambda function that runs the tasks of both queues.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/agent"
	"agentworker/internal/agent/providers"
	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/config"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
	"agentworker/internal/worker"
)

func main() {
	w, err := newWorker(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	lambda.Start(w)
}

func newWorker(ctx context.Context) (*worker.Worker, error) {
	cfg, err := config.Load[config.Worker]()
	if err != nil {
		return nil, err
	}
	keys, err := config.Load[config.Keys]()
	if err != nil {
		return nil, err
	}
	aws, err := awsclient.Load()
	if err != nil {
		return nil, err
	}
	logger := telemetry.NewLogger()
	chosen, err := providers.New(ctx, cfg, keys, aws, logger)
	if err != nil {
		return nil, err
	}
	store := checkpoint.New(dynamodb.NewFromConfig(aws), cfg.Table, checkpoint.Options{Retention: cfg.RecordRetention})
	types, err := task.NewRegistry(agent.Types(agent.Config{
		Retriever: chosen.Retriever, Model: chosen.Answers, Chat: chosen.Chat, Tickets: store,
		TokenLimit: int64(cfg.MaxTokensPerTask),
	})...)
	if err != nil {
		return nil, err
	}
	return worker.New(worker.Config{
		Tasks:           types.AllowTopics(cfg.AllowedTopics...),
		Store:           store,
		Queue:           sqs.NewFromConfig(aws),
		Logger:          logger,
		Metrics:         telemetry.NewMetrics(cfg.MetricsNamespace, os.Stdout),
		QueueURLs:       []string{cfg.QueueURL, cfg.OrderedQueueURL},
		Retries:         cfg.Retries,
		MaxReceiveCount: cfg.MaxReceiveCount,
		PartialBatch:    cfg.PartialBatch,
	}), nil
}
