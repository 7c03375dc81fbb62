// Package drill proves the chain's promises under faults: it starts the whole chain, lets everything go wrong that
// package chaos knows, puts thousands of tasks in, and then accounts for every one of them from the table, the queues and a
// ledger of the calls that the tasks' steps really made.
package drill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/awsclient"
	"agentworker/internal/emulator"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/emulator/drill/fastclock"
	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/topology"
)

// Config of a drill.
type Config struct {
	Tasks int
	// Seed of the tasks and of the faults. An even one drills the ordered queue with batches of one and poison among the
	// tickets, an odd one with batches of five and without: behind a poisoned head of a larger batch, healthy
	// messages run out of deliveries, which is why such batches are not the default.
	Seed uint64
	// Chaos is a plan; "": [Faults].
	Chaos string
	// Workers is how many worker processes there are; 0: 8.
	Workers int
	// Progress, if set, is told how many tasks have been put in and how many of them are off their queues.
	Progress func(accepted, done int)
	// Longest is how long the drill may take; 0: 20 minutes. It also ends when nothing has happened for five minutes.
	Longest time.Duration
	Logger  *slog.Logger // nil: nothing
}

// Faults is the usual plan of a drill.
const Faults = "throttle=0.02,conflict=0.03,slow=0.005,lost=0.01,cut=0.01,late=0.004,sqs=0.02,partial=0.05," +
	"kill=0.001,kill-before-claim=0.003,kill-after-claim=0.003,kill-mid-step=0.003,kill-before-write=0.003,kill-after-write=0.003," +
	"kill-submit=0.02,freeze=0.001,duplicate=0.05,lost-delete=0.02,alarm=1"

// The queues' clock runs this much faster than real time, so that nobody waits out a visibility timeout.
const haste = 5

// longestIdle is more than the longest pause that a worker asks for at its last delivery.
const longestIdle = 5 * time.Minute

// stack is the usual one with a function timeout that can be waited for, and room for more interruptions than real life has:
// a message that is handed back until another worker's lease ends comes back several times before, since the queues' clock
// runs ahead of the lease's.
// It is as valid as any that is deployed.
func stack(seed uint64) topology.Stack {
	s := topology.Default()
	s.Worker.Timeout = 4 * time.Second
	s.Retries = 5
	for _, q := range []*topology.TaskQueue{&s.Tasks, &s.Ordered} {
		q.Queue.Visibility = topology.AdvisedVisibility(s.Worker.Timeout, q.Mapping.BatchingWindow)
		q.MaxReceiveCount = 20
		q.DeadLetter.Visibility = 30 * time.Second
	}
	if seed%2 == 1 {
		s.Ordered.Mapping.BatchSize = 5
	}
	return s
}

// Run drills and accounts. An error says that the drill could not be held; broken promises are in the report.
func Run(ctx context.Context, c Config) (_ *Report, err error) {
	c = c.withDefaults()
	began := time.Now()
	d, err := start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	ended, err := d.work(ctx)
	if err != nil {
		return nil, err
	}
	d.chaos.Stop()
	report, err := d.account(ctx, ended)
	if err != nil {
		return nil, fmt.Errorf("account: %w", err)
	}
	report.Took = time.Since(began)
	return report, nil
}

func (c Config) withDefaults() Config {
	if c.Chaos == "" {
		c.Chaos = Faults
	}
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.Longest == 0 {
		c.Longest = 20 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = func(int, int) {}
	}
	return c
}

// drill is a running one.
type drill struct {
	Config
	dir      string
	stack    topology.Stack
	chaos    *chaos.Injector
	ledger   *ledger.Ledger
	server   *http.Server
	chain    *emulator.Chain
	client   *client
	dynamodb *dynamodb.Client
	jobs     []*job

	mu         sync.Mutex
	injections []chaos.Injection
	claims     map[string][]claim // by task
	ends       []lambda.Line      // of invocations and processes, where they ended badly
	notified   int
}

// claim is the begin of an attempt.
type claim struct {
	process string
	at      time.Time
}

func start(ctx context.Context, c Config) (_ *drill, err error) {
	plan, err := chaos.Parse(fmt.Sprintf("%s,seed=%d", c.Chaos, c.Seed))
	if err != nil {
		return nil, err
	}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	d := &drill{Config: c, stack: stack(c.Seed), claims: map[string][]claim{}, jobs: jobs(c.Tasks, c.Seed, c.Seed%2 == 0)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	if d.dir, err = os.MkdirTemp("", "drill-"); err != nil {
		return nil, err
	}
	if err := build(ctx, root, d.dir); err != nil {
		return nil, err
	}
	d.chaos = chaos.New(*plan, chaos.Watch{Injected: d.injected, Claimed: d.claimed})
	d.ledger = &ledger.Ledger{Chaos: d.chaos, LateBy: d.stack.Worker.Timeout + time.Second}
	address, err := d.serveLedger(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.dir, "worker", "ledger"), []byte(address), 0o600); err != nil {
		return nil, err
	}
	d.chain, err = emulator.Start(ctx, emulator.Config{
		Stack: d.stack, Workers: c.Workers, BinDir: d.dir, ToolsDir: filepath.Join(root, ".tools"),
		Clock: fastclock.New(haste, 2*c.Longest), Chaos: d.chaos,
		Logger: c.Logger, Output: d.output, Notify: d.notify,
	})
	if err != nil {
		return nil, err
	}
	return d, d.connect(ctx)
}

func (d *drill) serveLedger(ctx context.Context) (address string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	d.server = &http.Server{Handler: d.ledger, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(d.Logger.Handler(), slog.LevelDebug)}
	go func() { _ = d.server.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

// connect makes the clients of those who put tasks in and of the account; no fault comes between them and the chain.
func (d *drill) connect(ctx context.Context) error {
	nobody := credentials.NewStaticCredentialsProvider("any", "any", "")
	plain := awsclient.HTTPClient(0)
	d.dynamodb = dynamodb.New(dynamodb.Options{Region: "us-east-1", Credentials: nobody, BaseEndpoint: aws.String(d.chain.AWSURL()), HTTPClient: plain})
	d.client = &client{
		api: d.chain.APIURL(), http: &http.Client{Transport: plain.Transport, Timeout: 30 * time.Second}, run: strconv.FormatUint(d.Seed, 10),
		sqs: sqs.New(sqs.Options{Region: "us-east-1", Credentials: nobody, BaseEndpoint: aws.String(d.chain.AWSURL()), HTTPClient: plain}),
	}
	var err error
	if d.client.tasks, err = d.queueURL(ctx, d.stack.Tasks.QueueName()); err != nil {
		return err
	}
	d.client.ordered, err = d.queueURL(ctx, d.stack.Ordered.QueueName())
	return err
}

func (d *drill) queueURL(ctx context.Context, name string) (string, error) {
	out, err := d.client.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.QueueUrl), nil
}

func (d *drill) stop() error {
	var errs []error
	if d.chaos != nil {
		d.chaos.Stop()
	}
	if d.chain != nil {
		errs = append(errs, d.chain.Stop())
	}
	if d.server != nil {
		errs = append(errs, d.server.Close())
	}
	if d.client != nil {
		d.client.http.CloseIdleConnections()
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

func (d *drill) injected(i chaos.Injection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.injections = append(d.injections, i)
}

func (d *drill) claimed(task, process string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims[task] = append(d.claims[task], claim{process, time.Now()})
}

func (d *drill) notify(sns.Notification) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notified++
}

// work puts all jobs in and waits until the queues are empty. ended is false when that never came.
func (d *drill) work(ctx context.Context) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.Longest)
	defer cancel()
	submitted := make(chan error, 1)
	go func() { submitted <- d.client.submit(ctx, d.jobs) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	all, idle, last := false, time.Now(), [3]int{}
	for {
		select {
		case err := <-submitted:
			if err != nil {
				return false, err
			}
			all = true
		case err := <-d.chain.Failed():
			return false, fmt.Errorf("the chain ended: %w", err)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return false, nil
			}
			return false, ctx.Err()
		case <-tick.C:
			left, err := d.left(ctx)
			if err != nil {
				return false, err
			}
			d.client.left.Store(int64(left))
			accepted := int(d.client.accepted.Load())
			d.Progress(accepted, max(0, accepted-left))
			now := [3]int{accepted, left, d.ledger.Count()}
			switch {
			case all && left == 0:
				return true, nil
			case now != last:
				idle, last = time.Now(), now
			case time.Since(idle) > longestIdle:
				return false, nil
			}
		}
	}
}

// left is how many messages the two queues hold.
func (d *drill) left(ctx context.Context) (int, error) {
	tasks, err := d.depth(ctx, d.client.tasks)
	if err != nil {
		return 0, err
	}
	ordered, err := d.depth(ctx, d.client.ordered)
	return tasks + ordered, err
}

func (d *drill) depth(ctx context.Context, url string) (int, error) {
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	out, err := d.client.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return 0, err
	}
	total := 0
	for _, name := range names {
		n, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			return 0, fmt.Errorf("depth of %s: %w", url, err)
		}
		total += n
	}
	return total, nil
}
