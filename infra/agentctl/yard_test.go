package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/task"
	"agentworker/internal/topology"
)

// yard is a chain of a test's own, with its queues, its table and the notifications of its alarms.
type yard struct {
	*emulator.Chain
	stack  topology.Stack
	sqs    *sqs.Client
	lambda *lambda.Client
	store  *checkpoint.Store
	aws    string // where agentctl finds the AWS APIs

	mu       sync.Mutex
	notified []string
}

func newYard(t *testing.T, change func(*emulator.Config)) *yard {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{stack: topology.Default()}
	c := emulator.Config{
		Stack: y.stack, Workers: 2, BinDir: filepath.Dir(binary), ToolsDir: filepath.Join(root, ".tools"), Logger: slog.New(slog.DiscardHandler),
		Notify: func(n sns.Notification) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.notified = append(y.notified, n.Subject+"\n"+n.Message)
		},
	}
	if change != nil {
		change(&c)
	}
	if y.Chain, err = emulator.Start(context.WithoutCancel(t.Context()), c); err != nil {
		t.Fatal(err)
	}
	calls := awsclient.HTTPClient(0)
	t.Cleanup(func() {
		calls.CloseIdleConnections()
		if err := y.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	y.aws = y.AWSURL()
	nobody := credentials.NewStaticCredentialsProvider("any", "any", "")
	y.sqs = sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: &y.aws, Credentials: nobody, HTTPClient: calls})
	y.lambda = lambda.New(lambda.Options{Region: "us-east-1", BaseEndpoint: aws.String(y.AWSURL()), Credentials: nobody, HTTPClient: calls})
	y.store = checkpoint.New(dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(y.AWSURL()), Credentials: nobody, HTTPClient: calls}),
		y.stack.TableName, checkpoint.Options{})
	return y
}

// agentctl is the command line for this chain.
func (y *yard) agentctl(t *testing.T, args ...string) run {
	t.Helper()
	return finish(t, y.command(t.Context(), args...))
}

func (y *yard) command(ctx context.Context, args ...string) *exec.Cmd {
	c := calling(ctx, args...)
	c.Env = []string{"AWS_ENDPOINT_URL=" + y.aws, "HOME=/nonexistent"}
	return c
}

func (y *yard) url(t *testing.T, name string) *string {
	t.Helper()
	out, err := y.sqs.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return out.QueueUrl
}

// depth is how many messages a queue holds, those in flight included.
func (y *yard) depth(t *testing.T, name string) (n int) {
	t.Helper()
	names := []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible}
	out, err := y.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: y.url(t, name), AttributeNames: names})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		var part int
		if _, err := fmt.Sscan(out.Attributes[string(name)], &part); err != nil {
			t.Fatal(err)
		}
		n += part
	}
	return n
}

// eventually waits for what the chain's processes do: a test can only ask for it.
func (y *yard) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case err := <-y.Failed():
			t.Fatalf("the chain ended: %v", err)
		case <-limit.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// shows runs agentctl until it says all of this: what dlqalarm looks at just then is hidden from it.
func (y *yard) shows(t *testing.T, args []string, texts ...string) {
	t.Helper()
	var last run
	y.eventually(t, fmt.Sprintf("agentctl %v to say %q", args, texts), func() bool {
		last = y.agentctl(t, args...)
		return last.code == 0 && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(last.out, text) })
	})
	last.want(t, 0, texts...)
}

func (y *yard) record(t *testing.T, id task.ID) checkpoint.Record {
	t.Helper()
	rec, err := y.store.Record(t.Context(), id)
	if err != nil {
		t.Fatalf("record of %s: %v", id, err)
	}
	return rec
}

// ask puts questions in by the API.
func (y *yard) ask(t *testing.T, n int, question func(i int) string) []task.ID {
	t.Helper()
	ids := make([]task.ID, n)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	calls := awsclient.HTTPClient(0)
	defer calls.CloseIdleConnections()
	for i := range n {
		g.Go(func() error {
			body := fmt.Sprintf(`{"thread_id":"drill-%d","question":"What is a dead-letter queue? %s"}`, i, question(i))
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, y.APIURL()+"/agent/query", strings.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := calls.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = res.Body.Close() }()
			var accepted struct {
				TaskID task.ID `json:"task_id"`
			}
			if err := json.UnmarshalRead(res.Body, &accepted); err != nil || res.StatusCode != http.StatusAccepted {
				return fmt.Errorf("submit gave %d, %w", res.StatusCode, err)
			}
			ids[i] = accepted.TaskID
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// bury makes tasks whose messages lie in a dead-letter queue, and whose records say that the model was down.
func (y *yard) bury(t *testing.T, dead string, n int) []task.ID {
	t.Helper()
	url := y.url(t, dead)
	ids := make([]task.ID, n)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for thread := range n / 10 {
		g.Go(func() error {
			name := fmt.Sprint("dead-", thread)
			in := &sqs.SendMessageBatchInput{QueueUrl: url}
			for i := range 10 {
				id := task.NewID(name, time.Now())
				ids[thread*10+i] = id
				e := types.SendMessageBatchRequestEntry{
					Id: aws.String(fmt.Sprint(i)), MessageGroupId: &name,
					MessageBody: aws.String(fmt.Sprintf(`{"task":"rag_query","task_id":%q,"question":"What is a dead-letter queue?"}`, id)),
				}
				if strings.HasSuffix(dead, ".fifo") {
					e.MessageDeduplicationId = aws.String(string(id))
				}
				in.Entries = append(in.Entries, e)
			}
			out, err := y.sqs.SendMessageBatch(ctx, in)
			if err != nil || len(out.Failed) > 0 {
				return fmt.Errorf("send: %w, %v", err, out)
			}
			for i, sent := range out.Successful {
				rec, err := y.store.Claim(ctx, checkpoint.ClaimRequest{
					ID: ids[thread*10+i], Task: "rag_query", MessageID: *sent.MessageId, SentAt: time.Now(), Owner: "test", Until: time.Now().Add(time.Minute),
				})
				if err != nil {
					return err
				}
				if err := y.store.End(ctx, rec, checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: "MODEL_DOWN", Message: "no answer"}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return ids
}
