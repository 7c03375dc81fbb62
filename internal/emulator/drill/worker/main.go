// Command worker is the drill's worker function: wired like the one that deploys, with a ledger in the place of model and
// documents, and the drill's own task type.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/agent"
	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/config"
	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
	"agentworker/internal/worker"
)

func main() {
	w, err := newWorker()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	lambda.Start(w)
}

func newWorker() (*worker.Worker, error) {
	cfg, err := config.Load[config.Worker]()
	if err != nil {
		return nil, err
	}
	aws, err := awsclient.Load()
	if err != nil {
		return nil, err
	}
	// Functions get no environment but their own: the drill leaves the ledger's address beside the binary.
	address, err := os.ReadFile("ledger")
	if err != nil {
		return nil, err
	}
	outside := ledger.Client{URL: strings.TrimSpace(string(address)), Process: os.Getenv("AWS_SDK_UA_APP_ID")}
	store := checkpoint.New(dynamodb.NewFromConfig(aws), cfg.Table, checkpoint.Options{Retention: cfg.RecordRetention})
	types := agent.Types(agent.Config{Retriever: retriever{}, Model: model{outside}, Tickets: tickets{outside, store}})
	registry, err := task.NewRegistry(append(types, steps{outside}.definition().Type())...)
	if err != nil {
		return nil, err
	}
	return worker.New(worker.Config{
		Tasks:           registry,
		Store:           store,
		Queue:           sqs.NewFromConfig(aws),
		Logger:          telemetry.NewLogger(),
		Metrics:         telemetry.NewMetrics(cfg.MetricsNamespace, os.Stdout),
		QueueURLs:       []string{cfg.QueueURL, cfg.OrderedQueueURL},
		Retries:         cfg.Retries,
		MaxReceiveCount: cfg.MaxReceiveCount,
		PartialBatch:    cfg.PartialBatch,
	}), nil
}
