package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/goleak"

	"agentworker/internal/awsclient"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an endpoint that takes everything, behind an injector.
type bench struct {
	t        *testing.T
	injector *chaos.Injector
	url      string

	mu       sync.Mutex
	arrived  []string // operations that took effect
	injected []chaos.Injection
	signals  []string
	claims   []string
	struck   chan struct{} // one word for each fault
}

func newBench(t *testing.T, plan string) *bench {
	t.Helper()
	b := &bench{t: t, struck: make(chan struct{}, 1000)}
	p, err := chaos.Parse(plan)
	if err != nil {
		t.Fatal(err)
	}
	b.injector = chaos.New(*p, chaos.Watch{Injected: b.inject, Claimed: b.claim})
	b.injector.Reach(b)
	server := httptest.NewUnstartedServer(b.injector.Wire(http.HandlerFunc(b.serve)))
	server.Start()
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *bench) serve(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil || body.Len() == 0 {
		b.t.Errorf("the body did not arrive: %d bytes, %v", body.Len(), err)
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	b.mu.Lock()
	b.arrived = append(b.arrived, operation)
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_, _ = w.Write([]byte("{}"))
}

func (b *bench) inject(i chaos.Injection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.injected = append(b.injected, i)
	b.struck <- struct{}{}
}

func (b *bench) claim(task, process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = append(b.claims, task+" "+process)
}

// Signal implements chaos.Processes.
func (b *bench) Signal(id string, signal syscall.Signal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signals = append(b.signals, id+" "+signal.String())
	return true
}

func (b *bench) seen() (arrived int, injected []chaos.Injection, signals []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrived), b.injected, b.signals
}

// table is a client of the table as the process with this id has it; it tries once.
func (b *bench) table(process string) *dynamodb.Client {
	client := awsclient.HTTPClient(0)
	b.t.Cleanup(client.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: &b.url, Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
		AppID: process, Retryer: aws.NopRetryer{}, HTTPClient: client,
	})
}

func (b *bench) queue(process string) *sqs.Client {
	client := awsclient.HTTPClient(0)
	b.t.Cleanup(client.CloseIdleConnections)
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &b.url, Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
		AppID: process, Retryer: aws.NopRetryer{}, HTTPClient: client,
	})
}

const (
	id      = task.ID("th-1.01KDVDNA56YZ4293TFS69SQ1X2")
	process = "worker-3"
)

// The requests of the store that decides who may commit.
func claim(ctx context.Context, c *dynamodb.Client) error {
	_, err := checkpoint.New(c, "t", checkpoint.Options{}).Claim(ctx, checkpoint.ClaimRequest{
		ID: id, Task: "rag_query", MessageID: "m", Owner: "o", SentAt: time.Now(), Until: time.Now().Add(time.Minute),
	})
	return err
}

func commit(ctx context.Context, c *dynamodb.Client) error {
	_, err := checkpoint.New(c, "t", checkpoint.Options{}).Commit(ctx, checkpoint.Commit{
		Record: checkpoint.Record{TaskID: id, Lease: checkpoint.Lease{Fence: 1}}, Step: "s", Data: []byte(`{}`), Last: true,
	})
	return err
}

func end(ctx context.Context, c *dynamodb.Client) error {
	return checkpoint.New(c, "t", checkpoint.Options{}).End(ctx, checkpoint.Record{TaskID: id, Lease: checkpoint.Lease{Fence: 1}}, checkpoint.End{Status: checkpoint.Retrying})
}

func send(ctx context.Context, c *sqs.Client) error {
	_, err := c.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: aws.String("q"), MessageBody: aws.String("{}"),
		MessageAttributes: map[string]sqstypes.MessageAttributeValue{"task_id": {DataType: aws.String("String"), StringValue: aws.String(string(id))}},
	})
	return err
}

// Each fault strikes what it is for, is reported with its task, and lets the request take effect or not.
func TestEachFaultOnTheWire(t *testing.T) {
	t.Parallel()
	type call = func(context.Context, *bench) error
	table := func(f func(context.Context, *dynamodb.Client) error) call {
		return func(ctx context.Context, b *bench) error { return f(ctx, b.table(process)) }
	}
	queue := func(from string) call {
		return func(ctx context.Context, b *bench) error { return send(ctx, b.queue(from)) }
	}
	for _, c := range []struct {
		kind    chaos.Kind
		call    call
		err     string // in the caller's error; "": none
		arrives bool
		signal  string
	}{
		{chaos.Throttle, table(claim), "ProvisionedThroughputExceededException", false, ""},
		{chaos.Throttle, table(commit), "ProvisionedThroughputExceededException", false, ""},
		{chaos.Lost, table(claim), "EOF", true, ""},
		{chaos.Lost, table(commit), "EOF", true, ""},
		{chaos.Lost, queue("submit-1"), "EOF", true, ""},
		{chaos.Cut, table(end), "EOF", false, ""},
		{chaos.Cut, queue("submit-1"), "EOF", false, ""},
		{chaos.Slow, table(end), "", true, ""},
		{chaos.SQS, queue("submit-1"), "InternalError", false, ""},
		{chaos.KillBeforeClaim, table(claim), "EOF", false, "worker-3 killed"},
		{chaos.KillAfterClaim, table(claim), "EOF", true, "worker-3 killed"},
		{chaos.KillBeforeWrite, table(commit), "EOF", false, "worker-3 killed"},
		{chaos.KillAfterWrite, table(commit), "EOF", true, "worker-3 killed"},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, string(c.kind)+"=1")
			err := c.call(t.Context(), b)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("the caller got %v, want %q", err, c.err)
			}
			arrived, injected, signals := b.seen()
			if (arrived > 0) != c.arrives {
				t.Errorf("%d requests arrived, want it to arrive: %v", arrived, c.arrives)
			}
			if len(injected) != 1 || injected[0].Kind != c.kind || injected[0].Task != string(id) || injected[0].What == "" {
				t.Errorf("reported was %+v, want one %s of task %s", injected, c.kind, id)
			}
			if got := strings.Join(signals, ","); got != c.signal {
				t.Errorf("signals: got %q, want %q", got, c.signal)
			}
		})
	}
}

// A fault for one kind of request leaves the others alone.
func TestFaultsStrikeNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, "kill-before-claim=1,kill-before-write=1,kill-submit=1,sqs=0")
	if err := end(t.Context(), b.table(process)); err != nil {
		t.Errorf("to end an attempt is no claim: %v", err)
	}
	if err := send(t.Context(), b.queue(process)); err != nil {
		t.Errorf("a worker that sends is no API process: %v", err)
	}
	all := newBench(t, "all=1")
	for _, stranger := range []string{"", "somebody", "boto3"} {
		if err := errors.Join(claim(t.Context(), all.table(stranger)), send(t.Context(), all.queue(stranger))); err != nil {
			t.Errorf("a request of %q, which is no function's, got %v", stranger, err)
		}
	}
	all.injector.Stop()
	if err := claim(t.Context(), all.table(process)); err != nil {
		t.Errorf("after Stop: %v", err)
	}
	if _, injected, _ := all.seen(); len(injected) != 0 {
		t.Errorf("reported was %+v, want nothing", injected)
	}
}

// Conflicts are what the store tries again for by itself; here its caller gives up at the second try.
func TestConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t, "conflict=1")
	for name, call := range map[string]func(context.Context, *dynamodb.Client) error{"claim": claim, "commit": commit} {
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx, b.table(process)) }()
		<-b.struck
		select {
		case <-b.struck:
			giveUp()
		case err := <-ended:
			ended <- err
			t.Errorf("%s: got %v after one try, want more tries", name, err)
		}
		if err := <-ended; err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
		giveUp()
	}
	if arrived, injected, _ := b.seen(); arrived != 0 || len(injected) < 4 {
		t.Errorf("%d arrived and %d were injected, want none and several tries of both", arrived, len(injected))
	}
	_, err := b.table(process).TransactWriteItems(t.Context(), transaction(t))
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) || len(cancelled.CancellationReasons) == 0 || aws.ToString(cancelled.CancellationReasons[0].Code) != "TransactionConflict" {
		t.Errorf("a transaction got %v, want one that was cancelled by a conflict", err)
	}
}

func transaction(t *testing.T) *dynamodb.TransactWriteItemsInput {
	t.Helper()
	expr, err := expression.NewBuilder().WithUpdate(expression.Set(expression.Name("a"), expression.Value(1))).Build()
	if err != nil {
		t.Fatal(err)
	}
	return &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: &types.Update{
		TableName: aws.String("t"), UpdateExpression: expr.Update(), ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "thread#th-1"}, "sk": &types.AttributeValueMemberS{Value: "history#" + id.ULID()}},
	}}}}
}

func TestPartialRefusesEveryEntry(t *testing.T) {
	t.Parallel()
	b := newBench(t, "partial=1")
	out, err := b.queue(process).ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: aws.String("q"), Entries: []sqstypes.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("0"), ReceiptHandle: aws.String("h")}, {Id: aws.String("1"), ReceiptHandle: aws.String("h")},
		},
	})
	if err != nil || len(out.Failed) != 2 || aws.ToString(out.Failed[1].Id) != "1" || out.Failed[1].SenderFault {
		t.Errorf("got %+v, %v, want both entries refused through no fault of the sender", out, err)
	}
	if arrived, _, _ := b.seen(); arrived != 0 {
		t.Errorf("%d requests arrived, want none", arrived)
	}
}

// Half of the API's processes die before the message is sent, half after.
func TestKillSubmit(t *testing.T) {
	t.Parallel()
	b := newBench(t, "kill-submit=1,seed=1")
	const sends = 40
	for range sends {
		if err := send(t.Context(), b.queue("submit-1")); err == nil {
			t.Fatal("a killed process got an answer")
		}
	}
	arrived, _, signals := b.seen()
	if arrived == 0 || arrived == sends || len(signals) != sends {
		t.Errorf("%d of %d messages were sent and %d processes killed, want some, and all", arrived, sends, len(signals))
	}
}

// A late commit arrives after the task's next claim took effect and before its new owner hears of it.
func TestLate(t *testing.T) {
	t.Parallel()
	b := newBench(t, "late=1")
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- commit(ctx, b.table("worker-1")) }()
	<-b.struck
	giveUp()
	if err := <-gone; err == nil {
		t.Error("the sender got an answer")
	}
	if arrived, _, _ := b.seen(); arrived != 0 {
		t.Fatalf("%d requests arrived before the next claim, want none", arrived)
	}
	if err := claim(t.Context(), b.table("worker-2")); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.arrived, ","); got != "UpdateItem,TransactWriteItems" {
		t.Errorf("arrived: got %s, want the claim and then the commit", got)
	}
	if got := strings.Join(b.claims, ","); got != string(id)+" worker-2" {
		t.Errorf("claims: got %s", got)
	}
}

// The same seed strikes at the same occurrences, another at others.
func TestSeedsReplay(t *testing.T) {
	t.Parallel()
	strikes := func(seed string) string {
		b := newBench(t, "throttle=0.5,seed="+seed)
		client := b.table(process)
		var s strings.Builder
		for range 64 {
			if claim(t.Context(), client) != nil {
				s.WriteByte('x')
			} else {
				s.WriteByte('.')
			}
		}
		return s.String()
	}
	first, again, other := strikes("1"), strikes("1"), strikes("2")
	if first != again {
		t.Errorf("one seed struck at\n%s and\n%s", first, again)
	}
	if first == other {
		t.Errorf("two seeds struck both at\n%s", first)
	}
	if n := strings.Count(first, "x"); n < 16 || n > 48 {
		t.Errorf("a rate of a half struck %d of 64 times", n)
	}
}
