package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"agentworker/infra/bench/contest"
	"agentworker/internal/awsclient"
	"agentworker/internal/emulator/sqs"
)

const (
	clients   = 8
	queueTime = 2 * time.Second // of a round
	backlog   = 100_000
)

// queues measures the local queue, as it runs in the chain, beside another emulator's.
func (b *bench) queues(ctx context.Context) error {
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return err
	}
	chain := exec.CommandContext(ctx, filepath.Join("build", "local", "chain")) //nolint:gosec // ours
	chain.Env = append(os.Environ(), "PORT="+ports[0], "AWS_PORT="+ports[1], "DATA_DIR=", "CHAOS=", "WORKERS=1")
	kumo := exec.CommandContext(ctx, filepath.Join(b.tools, "bin", "kumo"), "--host", "127.0.0.1", "--port", ports[2]) //nolint:gosec // installed for this
	kumo.Env = append(os.Environ(), "KUMO_LOG_LEVEL=error")
	stopChain, err := start(chain)
	if err != nil {
		return err
	}
	defer stopChain()
	stopKumo, err := start(kumo)
	if err != nil {
		return err
	}
	defer stopKumo()

	servers := map[string]*queueServer{}
	for name, port := range map[string]string{"ours": ports[1], "kumo": ports[2]} {
		if servers[name], err = openQueues(ctx, "http://127.0.0.1:"+port); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer servers[name].close()
	}
	commands := map[string]*exec.Cmd{"ours": chain, "kumo": kumo}
	cycles, cpu := series{}, series{}
	for range b.rounds {
		for _, name := range []string{"ours", "kumo"} {
			before := processTime(commands[name])
			n, err := servers[name].cycles(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			cycles.add(name, float64(n)/queueTime.Seconds())
			cpu.add(name, (processTime(commands[name])-before).Seconds()*1e6/float64(n))
		}
	}
	for name := range servers {
		f := b.results.of(name)
		f.QueueOps, f.QueueCPU = cycles.median(name), cpu.median(name)
	}
	f := b.results.of("ours")
	if f.QueueBacklog, err = servers["ours"].backlog(ctx); err != nil {
		return err
	}
	f.QueueBytes, err = bytesPerMessage(ctx)
	return err
}

// processTime is the processor time that a running process has used so far, to a hundredth of a second; zero where the
// system does not tell.
func processTime(command *exec.Cmd) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(stat), ") ") // behind the name, which may be anything
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// start runs a command in a process group of its own until stop is called.
func start(command *exec.Cmd) (stop func(), err error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = command.Cancel()
		_ = command.Wait() // it was told to end
	}, nil
}

func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// queueServer is an SQS with a queue, and clients that have nothing in common.
type queueServer struct {
	clients []*awssqs.Client
	http    []*http.Client
	url     string // of the queue
}

func openQueues(ctx context.Context, endpoint string) (*queueServer, error) {
	s := &queueServer{}
	for range clients {
		h := awsclient.HTTPClient(10 * time.Second)
		s.http = append(s.http, h)
		s.clients = append(s.clients, awssqs.New(awssqs.Options{
			Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: h, Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		}))
	}
	err := until(ctx, func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", strings.TrimPrefix(endpoint, "http://"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err == nil {
		s.url, err = s.create(ctx, "bench")
	}
	return s, err
}

func (s *queueServer) close() {
	for _, h := range s.http {
		h.CloseIdleConnections()
	}
}

func (s *queueServer) create(ctx context.Context, name string) (string, error) {
	out, err := s.clients[0].CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &name})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.QueueUrl), nil
}

// until tries again until it works, for half a minute.
func until(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// cycles counts the messages that all clients together send, receive and delete in a round's time.
func (s *queueServer) cycles(ctx context.Context) (int64, error) {
	var n atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	ends := time.Now().Add(queueTime)
	for _, c := range s.clients {
		g.Go(func() error {
			for time.Now().Before(ends) {
				if err := send(ctx, c, s.url, 1); err != nil {
					return err
				}
				if _, err := receive(ctx, c, s.url); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	err := g.Wait()
	return n.Load(), err
}

// send puts one message on a queue, or a batch of several.
func send(ctx context.Context, c *awssqs.Client, url string, n int) error {
	body, attributes := outgoing()
	if n == 1 {
		_, err := c.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body, MessageAttributes: attributes})
		return err
	}
	in := &awssqs.SendMessageBatchInput{QueueUrl: &url}
	for i := range n {
		in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &body, MessageAttributes: attributes})
	}
	_, err := c.SendMessageBatch(ctx, in)
	return err
}

func outgoing() (body string, attributes map[string]types.MessageAttributeValue) {
	r := contest.Record(contest.Thread(0), contest.Question)
	attributes = map[string]types.MessageAttributeValue{}
	for name, a := range r.MessageAttributes {
		attributes[name] = types.MessageAttributeValue{DataType: &a.DataType, StringValue: a.StringValue}
	}
	return r.Body, attributes
}

// receive takes one message off a queue, and tells how long the receive took.
func receive(ctx context.Context, c *awssqs.Client, url string) (time.Duration, error) {
	for {
		began := time.Now()
		out, err := c.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		took := time.Since(began)
		if err != nil {
			return 0, err
		}
		if len(out.Messages) == 0 {
			continue // another client was faster
		}
		_, err = c.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: out.Messages[0].ReceiptHandle})
		return took, err
	}
}

// backlog is how long it takes to receive a message when 100,000 are waiting, as a share of the time with that one only.
func (s *queueServer) backlog(ctx context.Context) (float64, error) {
	full, err := s.create(ctx, "bench-full")
	if err != nil {
		return 0, err
	}
	g, filling := errgroup.WithContext(ctx)
	for _, c := range s.clients {
		g.Go(func() error {
			for range backlog / clients / 10 {
				if err := send(filling, c, full, 10); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	took := series{}
	for range 1000 {
		for _, url := range []string{full, s.url} {
			if err := send(ctx, s.clients[0], url, 1); err != nil {
				return 0, err
			}
			d, err := receive(ctx, s.clients[0], url)
			if err != nil {
				return 0, err
			}
			took.add(url, milliseconds(d))
		}
	}
	return took.median(full) / took.median(s.url), nil
}

// bytesPerMessage is what a waiting message takes of our queue's memory beyond its body.
func bytesPerMessage(ctx context.Context) (float64, error) {
	server, err := sqs.Open(sqs.Options{})
	if err != nil {
		return 0, err
	}
	defer server.Close() //nolint:errcheck // in memory
	body, attributes := outgoing()
	if err := post(ctx, server, "CreateQueue", `{"QueueName":"q"}`); err != nil {
		return 0, err
	}
	var entry strings.Builder
	for name, a := range attributes {
		fmt.Fprintf(&entry, `,%q:{"DataType":%q,"StringValue":%q}`, name, *a.DataType, *a.StringValue)
	}
	request := fmt.Sprintf(`{"QueueUrl":"http://127.0.0.1/000000000000/q","MessageBody":%q,"MessageAttributes":{%s}}`, body, entry.String()[1:])
	before := memory()
	for range backlog {
		if err := post(ctx, server, "SendMessage", request); err != nil {
			return 0, err
		}
	}
	after := memory()
	runtime.KeepAlive(server)
	return float64(after-before)/backlog - float64(len(body)), nil
}

func post(ctx context.Context, server http.Handler, action, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	w := &discard{header: http.Header{}}
	server.ServeHTTP(w, r)
	if w.status != http.StatusOK {
		return fmt.Errorf("%s is answered with status %d", action, w.status)
	}
	return nil
}

// discard keeps an answer's status only.
type discard struct {
	io.Writer
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
