// Command submit is the Lambda function behind the HTTP API.
package main

import (
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/agent"
	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/config"
	"agentworker/internal/httpapi"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

func main() {
	api, err := newAPI()
	if err != nil {
		fmt.Fprintln(os.Stderr, "submit:", err)
		os.Exit(1)
	}
	lambda.Start(api)
}

func newAPI() (httpapi.Handler, error) {
	cfg, err := config.Load[config.Submit]()
	if err != nil {
		return nil, err
	}
	aws, err := awsclient.Load()
	if err != nil {
		return nil, err
	}
	// Submitting checks a task and runs nothing, so that its types need no parts.
	types, err := task.NewRegistry(agent.Types(agent.Config{})...)
	if err != nil {
		return nil, err
	}
	return httpapi.Adapter(httpapi.New(httpapi.Config{
		Tasks:           types,
		Store:           checkpoint.New(dynamodb.NewFromConfig(aws), cfg.Table, checkpoint.Options{Retention: cfg.RecordRetention}),
		Queue:           sqs.NewFromConfig(aws),
		QueueURL:        cfg.QueueURL,
		OrderedQueueURL: cfg.OrderedQueueURL,
		Logger:          telemetry.NewLogger(),
	})), nil
}
