// Command invoke runs a Lambda function's real binary once, with one event, against the local chain: what it logs, a
// REPORT line, and its answer. `make invoke` builds and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/config"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/topology"
)

const (
	region  = "us-east-1"
	account = "000000000000"
)

func main() {
	var o options
	flag.StringVar(&o.function, "function", "worker", "worker, submit or dlqalarm")
	flag.StringVar(&o.event, "event", "", "the file with the event")
	flag.StringVar(&o.binDir, "bin", filepath.Join("build", "local"), "holds <function>/bootstrap for this machine")
	flag.Parse()
	o.awsURL = "http://127.0.0.1:" + portOr("4566")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "invoke:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop has been called
	}
}

type options struct{ function, event, binDir, awsURL string }

func portOr(port string) string {
	if p := os.Getenv("AWS_PORT"); p != "" {
		return p
	}
	return port
}

var errFunction = errors.New("the function failed")

// run prints the answer to out, and everything else to log.
func run(ctx context.Context, o options, out, log io.Writer) error {
	event, err := os.ReadFile(o.event)
	if err != nil {
		return fmt.Errorf("read the event: %w; set EVENT=file.json", err)
	}
	if !jsontext.Value(event).IsValid() {
		return fmt.Errorf("the event in %s is not JSON", o.event)
	}
	f, variables, err := find(ctx, o)
	if err != nil {
		return err
	}
	function := lambda.New(lambda.Config{
		Name: f.Name, Binary: filepath.Join(o.binDir, f.Name, "bootstrap"), Env: environ(o.awsURL, variables),
		Timeout: f.Timeout, MemoryMiB: f.MemoryMiB, Region: region, AccountID: account,
		Output: func(l lambda.Line) { _, _ = fmt.Fprintln(log, l.Text) },
	})
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = function.Close(closing) // the process is ended in any case
	}()
	result, err := function.Invoke(ctx, event)
	if err != nil {
		return fmt.Errorf("invoke %s: %w", f.Name, err)
	}
	_, _ = fmt.Fprintf(out, "%s\n", result.Payload)
	if result.FunctionError != "" {
		return errFunction
	}
	return nil
}

// find is a function and its environment in the local chain.
func find(ctx context.Context, o options) (topology.Function, map[string]string, error) {
	s := topology.Default()
	urls, err := queueURLs(ctx, o.awsURL, s.Tasks.QueueName(), s.Ordered.QueueName(), s.Tasks.DeadLetterName(), s.Ordered.DeadLetterName())
	if err != nil {
		return topology.Function{}, nil, err
	}
	tasks, ordered, dlq, orderedDLQ := urls[0], urls[1], urls[2], urls[3]
	switch o.function {
	case s.Worker.Name:
		return s.Worker, config.Variables(config.Worker{
			Table: s.TableName, QueueURL: tasks, OrderedQueueURL: ordered,
			Retries: s.Retries, MaxReceiveCount: min(s.Tasks.MaxReceiveCount, s.Ordered.MaxReceiveCount),
			PartialBatch:    s.Tasks.Mapping.ReportBatchItemFailures && s.Ordered.Mapping.ReportBatchItemFailures,
			RecordRetention: s.RecordRetention, MetricsNamespace: s.MetricsNamespace,
		}), nil
	case s.Submit.Name:
		return s.Submit, config.Variables(config.Submit{
			Table: s.TableName, QueueURL: tasks, OrderedQueueURL: ordered, RecordRetention: s.RecordRetention,
		}), nil
	case s.DLQAlarm.Name:
		return s.DLQAlarm, config.Variables(config.DLQAlarm{
			Table: s.TableName, QueueURL: tasks, OrderedQueueURL: ordered, DLQURL: dlq, OrderedDLQURL: orderedDLQ,
			TopicARN:        fmt.Sprintf("arn:aws:sns:%s:%s:%s", region, account, s.TopicName),
			RecordRetention: s.RecordRetention, MetricsNamespace: s.MetricsNamespace,
		}), nil
	}
	return topology.Function{}, nil, fmt.Errorf("there is no function %q; set FUNCTION to %s, %s or %s", o.function, s.Worker.Name, s.Submit.Name, s.DLQAlarm.Name)
}

// queueURLs asks the local chain; it is also how to see that it is up.
func queueURLs(ctx context.Context, awsURL string, names ...string) ([]string, error) {
	client := sqs.New(sqs.Options{
		Region: region, BaseEndpoint: &awsURL, Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		Retryer: aws.NopRetryer{},
	})
	var urls []string
	for _, name := range names {
		out, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
		if err != nil {
			return nil, fmt.Errorf("the local chain does not answer at %s; start it with make run in another terminal, or set AWS_PORT to where it listens: %w", awsURL, err)
		}
		urls = append(urls, aws.ToString(out.QueueUrl))
	}
	return urls, nil
}

func environ(awsURL string, variables map[string]string) []string {
	env := []string{"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_ENDPOINT_URL=" + awsURL}
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	return env
}
