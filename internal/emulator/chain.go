// Package emulator runs the whole chain on one machine: the unmodified function binaries between a local SQS, DynamoDB,
// SNS, event source mappings, alarms and HTTP API, with the names and numbers of the deployed stack.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jonboulle/clockwork"

	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/apigateway"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/emulator/cloudformation"
	"agentworker/internal/emulator/control"
	"agentworker/internal/emulator/dynamodb"
	"agentworker/internal/emulator/endpoint"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/emulator/sqs"
	"agentworker/internal/topology"
)

const (
	region  = "us-east-1"
	account = "000000000000"

	sweepRule = "dead-letter-sweep"
)

// Config of a [Chain].
type Config struct {
	Stack   topology.Stack
	Port    int // of the HTTP API; 0: any free one
	AWSPort int // of the AWS APIs; 0: any free one
	// DataDir is where queues and table are kept over a restart; "": in memory.
	DataDir string
	// Workers is how many worker processes there are at most, 1 or more.
	Workers int
	// BinDir holds <function>/bootstrap for this machine.
	BinDir string
	// ToolsDir is where dynoxide is, or is installed.
	ToolsDir string
	// DynamoDBEndpoint and SQSEndpoint, when set, are used in the place of ours.
	DynamoDBEndpoint string
	SQSEndpoint      string
	// AllowedTopics are the SNS topics, by ARN, whose notifications may hold tasks.
	AllowedTopics []string
	// WorkerEnv holds more KEY=VALUE pairs for the worker, such as its model's; they win over the chain's own.
	WorkerEnv []string
	// WorkerRegion is the AWS region of what the worker uses beside the chain, such as its model; "": us-east-1.
	WorkerRegion string
	// StopTimeout is how long running invocations may take to finish at the end; 0: 10 s.
	StopTimeout time.Duration

	// Clock is the queues'; nil: real time. With one that runs faster, whoever waits for a message waits less.
	Clock clockwork.Clock
	// Chaos breaks things on purpose; nil: nothing does.
	Chaos *chaos.Injector

	Logger *slog.Logger
	Output func(lambda.Line)                       // what the functions write; nil: dropped
	Notify func(sns.Notification)                  // what dlqalarm publishes; nil: only kept
	Batch  func(queue string, event mapping.Event) // the end of every batch; nil: not told
}

// Chain is the running chain.
type Chain struct {
	config Config
	log    *slog.Logger

	awsURL, apiURL string
	sqsServer      *sqs.Server // nil: somebody else's
	table          *dynamodb.Server
	topic          *sns.Server
	stacks         *cloudformation.Server
	sqsClient      *awssqs.Client
	tasks, ordered taskQueue

	worker, submit, dlqalarm *lambda.Function
	async                    *lambda.Async
	lambdaAPI                atomic.Pointer[lambda.Handler]
	plane                    atomic.Pointer[control.Plane]
	mappings                 []*mapping.Managed
	alarms                   []*alarm.Alarm

	closers []closer // in the order of starting
	failed  chan error
}

type closer struct {
	what  string
	close func(context.Context) error
}

// Start brings everything up and returns when a request can be served. On an error nothing is left running.
func Start(ctx context.Context, config Config) (_ *Chain, err error) {
	if err := config.Stack.Validate(); err != nil {
		return nil, fmt.Errorf("the stack's settings are not sound:\n%w", err)
	}
	if config.StopTimeout == 0 {
		config.StopTimeout = 10 * time.Second
	}
	c := &Chain{config: config, log: config.Logger, failed: make(chan error, 16)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	api, err := listen(ctx, "PORT", config.Port)
	if err != nil {
		return nil, err
	}
	awsAPI, err := listen(ctx, "AWS_PORT", config.AWSPort)
	if err != nil {
		return nil, errors.Join(err, api.Close())
	}
	began := time.Now()
	c.stacks = cloudformation.New(cloudformation.Config{Region: region, AccountID: account})
	c.stacks.Put(c.describe(began, false))
	c.apiURL, c.awsURL = "http://"+api.Addr().String(), "http://"+awsAPI.Addr().String()
	c.later("HTTP API", func(context.Context) error { return closeListener(api) })
	c.later("AWS APIs", func(context.Context) error { return closeListener(awsAPI) })

	if err := c.startServices(ctx, awsAPI); err != nil {
		return nil, err
	}
	if err := c.createResources(ctx); err != nil {
		return nil, err
	}
	if err := c.startFunctions(ctx); err != nil {
		return nil, err
	}
	if err := c.startConsumers(); err != nil {
		return nil, err
	}
	if err := c.startAPI(api); err != nil {
		return nil, err
	}
	c.stacks.Put(c.describe(began, true))
	return c, nil
}

// APIURL is where the HTTP API listens.
func (c *Chain) APIURL() string { return c.apiURL }

// AWSURL is where the AWS APIs listen.
func (c *Chain) AWSURL() string { return c.awsURL }

// Failed tells of what ended although nobody stopped it; the chain is of no use then.
func (c *Chain) Failed() <-chan error { return c.failed }

func (c *Chain) later(what string, f func(context.Context) error) {
	c.closers = append(c.closers, closer{what, f})
}

// Stop ends the chain, last part first: no request and no message is taken any more, what is under way is finished or
// handed back. It takes a little longer than StopTimeout at most.
func (c *Chain) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.StopTimeout+5*time.Second)
	defer cancel()
	var errs []error
	for len(c.closers) > 0 {
		last := c.closers[len(c.closers)-1]
		c.closers = c.closers[:len(c.closers)-1]
		if err := last.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", last.what, err))
		}
	}
	return errors.Join(errs...)
}

func listen(ctx context.Context, variable string, port int) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("%s %d cannot be used: %w; set %s to a free port", variable, port, err, variable)
	}
	return l, nil
}

func closeListener(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// clientPatience is how long the chain goes on for its clients' sake when it stops. Who waits for a task to end, or keeps the
// rest of a request to himself, is cut off then: he was promised nothing yet, and what is under way needs the time.
const clientPatience = 2 * time.Second

// serve answers requests on l until the chain stops; requests under way get clientPatience to finish then.
func (c *Chain) serve(what string, l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug)}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			c.fail(what, err)
		}
	}()
	c.later(what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, clientPatience)
		defer cancel()
		err := server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return server.Close()
		}
		return err
	})
}

func (c *Chain) fail(what string, err error) {
	select {
	case c.failed <- fmt.Errorf("%s: %w", what, err):
	default: // one is enough to stop
	}
}

// startAPI opens the front door, the last part to come up and the first to close.
func (c *Chain) startAPI(l net.Listener) error {
	gateway, err := apigateway.New(apigateway.Config{Routes: topology.Routes(), Function: newTurns(c.submit, submitProcesses, requestPatience), AccountID: account, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	c.later("HTTP API", func(context.Context) error { return gateway.Close() })
	c.serve("HTTP API", l, endpoint.LocalOnly(gateway, c.log))
	return nil
}

// startConsumers starts what reacts to the queues: mappings, alarms, and the schedule.
func (c *Chain) startConsumers() error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.later("mappings and alarms", func(context.Context) error {
		cancel()
		running.Wait()
		return nil
	})
	start := func(what string, run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil {
				c.fail(what, err)
			}
		})
	}
	worker := newTurns(c.worker, c.config.Workers, batchPatience)
	for _, q := range []taskQueue{c.tasks, c.ordered} {
		m, err := c.mapping(q, worker)
		if err != nil {
			return err
		}
		c.mappings = append(c.mappings, m)
		start("mapping of "+q.main.name, m.Run)
		a, err := c.alarm(q)
		if err != nil {
			return err
		}
		c.alarms = append(c.alarms, a)
		start("alarm on "+q.dead.name, a.Run)
	}
	look, err := c.invoke(rulesPrincipal, ruleARN(sweepRule), sweepRule)
	if err != nil {
		return err
	}
	sweep, err := alarm.NewSchedule(alarm.ScheduleConfig{
		Rule: sweepRule, Interval: c.config.Stack.SweepInterval, Logger: c.log,
		Actions: []alarm.Action{look}, ActionARNs: []string{c.dlqalarm.ARN()},
	})
	if err != nil {
		return err
	}
	c.startPlane(sweep)
	start("schedule", sweep.Run)
	return nil
}
