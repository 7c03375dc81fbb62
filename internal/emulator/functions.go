package emulator

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"agentworker/internal/config"
	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
	"agentworker/internal/topology"
)

// How long a batch waits for a worker, and a request for a submit process, before it counts as throttled.
const (
	batchPatience   = 30 * time.Second
	requestPatience = 20 * time.Second
)

// submitProcesses is how many requests the HTTP API can serve at once. On AWS there are as many as it takes.
const submitProcesses = 32

// asyncRetryDelay is how long a failed alarm or schedule invocation waits for its next try. On AWS it is a minute.
const asyncRetryDelay = 2 * time.Second

// startFunctions makes the three functions and starts a process of each that people wait for.
func (c *Chain) startFunctions(ctx context.Context) error {
	stack := c.config.Stack
	c.worker = c.function(stack.Worker, cmp.Or(c.config.WorkerRegion, region), c.config.Workers, config.Variables(config.Worker{
		Table: stack.TableName, QueueURL: c.tasks.main.url, OrderedQueueURL: c.ordered.main.url,
		Retries: stack.Retries, MaxReceiveCount: min(stack.Tasks.MaxReceiveCount, stack.Ordered.MaxReceiveCount),
		PartialBatch:    stack.Tasks.Mapping.ReportBatchItemFailures && stack.Ordered.Mapping.ReportBatchItemFailures,
		RecordRetention: stack.RecordRetention, MetricsNamespace: stack.MetricsNamespace,
		AllowedTopics: c.config.AllowedTopics,
	}), c.config.WorkerEnv...)
	c.submit = c.function(stack.Submit, region, submitProcesses, config.Variables(config.Submit{
		Table: stack.TableName, QueueURL: c.tasks.main.url, OrderedQueueURL: c.ordered.main.url, RecordRetention: stack.RecordRetention,
	}))
	c.dlqalarm = c.function(stack.DLQAlarm, region, 1, config.Variables(config.DLQAlarm{
		Table: stack.TableName, QueueURL: c.tasks.main.url, OrderedQueueURL: c.ordered.main.url,
		DLQURL: c.tasks.dead.url, OrderedDLQURL: c.ordered.dead.url,
		DLQAlarm: stack.Tasks.DeadLetterAlarmName(), OrderedDLQAlarm: stack.Ordered.DeadLetterAlarmName(),
		TopicARN: c.topic.TopicARN(stack.TopicName), RecordRetention: stack.RecordRetention, MetricsNamespace: stack.MetricsNamespace,
		AllowedTopics: c.config.AllowedTopics,
	}))
	c.async = lambda.NewAsync(lambda.AsyncConfig{RetryDelay: asyncRetryDelay, Logger: c.log})
	c.lambdaAPI.Store(lambda.NewHandler(c.async, c.worker, c.submit, c.dlqalarm))
	for _, f := range []*lambda.Function{c.worker, c.dlqalarm} {
		c.later("function "+f.Name(), f.Close)
	}
	c.later("function "+c.submit.Name(), c.closeSubmit)
	c.later("asynchronous invocations", c.async.Close)

	c.config.Chaos.Reach(c.worker, c.submit, c.dlqalarm)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.worker.Warm(ctx) })
	g.Go(func() error { return c.submit.Warm(ctx) })
	return g.Wait()
}

// closeSubmit ends submit after the front door: whoever it still runs for is gone.
func (c *Chain) closeSubmit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	if err := c.submit.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func (c *Chain) function(f topology.Function, region string, processes int, variables map[string]string, more ...string) *lambda.Function {
	env := []string{
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
		"AWS_ENDPOINT_URL_SNS=" + c.awsURL,
		"AWS_ENDPOINT_URL_DYNAMODB=" + cmp.Or(c.config.DynamoDBEndpoint, c.awsURL),
		"AWS_ENDPOINT_URL_SQS=" + cmp.Or(c.config.SQSEndpoint, c.awsURL),
	}
	for _, some := range []map[string]string{variables, f.Collector()} {
		for name, value := range some {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, more...)
	return lambda.New(lambda.Config{
		Name: f.Name, Binary: filepath.Join(c.config.BinDir, f.Name, "bootstrap"), Env: env,
		Timeout: f.Timeout, MemoryMiB: f.MemoryMiB, Concurrency: processes,
		Region: region, AccountID: account, Output: c.config.Output,
	})
}

// turns makes callers wait for a free process of a function, in the order of asking. On AWS there are as many as it takes;
// here they would only be throttled.
type turns struct {
	*lambda.Function
	free     *semaphore.Weighted
	patience time.Duration // after which a caller is throttled all the same
}

func newTurns(f *lambda.Function, processes int, patience time.Duration) turns {
	return turns{f, semaphore.NewWeighted(int64(processes)), patience}
}

func (t turns) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	waiting, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	if err := t.free.Acquire(waiting, 1); err != nil {
		if ctx.Err() != nil {
			return lambda.Result{}, ctx.Err()
		}
		return lambda.Result{}, lambda.ErrThrottled
	}
	defer t.free.Release(1)
	return t.Function.Invoke(ctx, payload)
}

// mapping is the event source mapping that feeds the worker from a queue. It does not ask for more invocations at once
// than there are workers, but for the two that are Lambda's minimum.
func (c *Chain) mapping(q taskQueue, worker mapping.Invoker) (*mapping.Managed, error) {
	concurrency := min(q.Mapping.MaximumConcurrency, max(c.config.Workers, 2))
	return mapping.NewManaged(mappingUUID(q.main.arn, c.worker.ARN()), c.worker.ARN(), mapping.Config{
		QueueURL: q.main.url, QueueARN: q.main.arn, Region: region,
		BatchSize: q.Mapping.BatchSize, BatchingWindow: q.Mapping.BatchingWindow, MaximumConcurrency: concurrency,
		ReportBatchItemFailures: q.Mapping.ReportBatchItemFailures,
		FunctionTimeout:         c.worker.Timeout(), DrainTimeout: c.config.StopTimeout,
		Function: c.config.Chaos.Function(worker), SQS: c.config.Chaos.Queue(c.sqsClient), Logger: c.log,
		Observe: func(e mapping.Event) {
			if c.config.Batch != nil {
				c.config.Batch(q.main.name, e)
			}
		},
	})
}

// alarm watches a dead-letter queue's depth, and has dlqalarm look when it changes.
func (c *Chain) alarm(q taskQueue) (*alarm.Alarm, error) {
	name := q.DeadLetterAlarmName()
	look, err := c.invoke(alarmsPrincipal, alarmARN(name), name)
	if err != nil {
		return nil, err
	}
	return alarm.New(alarm.Config{
		Name: name, ARN: alarmARN(name), Description: "Messages in " + q.dead.name,
		Region: region, AccountID: account, QueueName: q.dead.name,
		Metric: maximum(func(ctx context.Context) (int, error) {
			visible, err := c.visible(ctx, q.dead)
			return visible, wrap(err, "depth of %s", q.dead.name)
		}),
		AlarmActions: []alarm.Action{c.config.Chaos.Action(look)}, AlarmActionARNs: []string{c.dlqalarm.ARN()},
		Logger: c.log,
	})
}

// alarmWindow is how many of the last data points, one a second, the alarm takes the largest of. CloudWatch's statistic
// Maximum does the same over a minute: dlqalarm hides a queue's messages while it looks at them, which must not count as
// an empty queue.
const alarmWindow = 10

// maximum is the largest of the last alarmWindow values of a metric.
func maximum(metric func(context.Context) (int, error)) func(context.Context) (int, error) {
	var last [alarmWindow]int
	next := 0
	return func(ctx context.Context) (int, error) {
		value, err := metric(ctx)
		if err != nil {
			return 0, err
		}
		last[next%alarmWindow] = value
		next++
		return slices.Max(last[:]), nil
	}
}
