package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

// fixture is a store over a table of its own, and a clock that stands still until it is moved.
type fixture struct {
	*checkpoint.Store
	api   *faulty
	table string
	now   *atomic.Pointer[time.Time]
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	client := dynamodbtest.New(t)
	f := &fixture{api: &faulty{API: client}, table: dynamodbtest.Table(t, client), now: &atomic.Pointer[time.Time]{}}
	f.set(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	f.Store = checkpoint.New(f.api, f.table, checkpoint.Options{Now: func() time.Time { return *f.now.Load() }})
	return f
}

func (f *fixture) set(t time.Time)              { f.now.Store(&t) }
func (f *fixture) pass(d time.Duration)         { f.set(f.now.Load().Add(d)) }
func (f *fixture) in(d time.Duration) time.Time { return f.now.Load().Add(d) }

// claim claims a new task of the thread, or fails the test.
func (f *fixture) claim(t *testing.T, thread string) checkpoint.Record {
	t.Helper()
	return f.claimTask(t, task.NewID(thread, *f.now.Load()), "m-1")
}

func (f *fixture) claimTask(t *testing.T, id task.ID, messageID string) checkpoint.Record {
	t.Helper()
	rec, err := f.Claim(t.Context(), f.request(id, messageID))
	if err != nil {
		t.Fatalf("claim %s: %v", id, err)
	}
	return rec
}

var owners atomic.Int64

func (f *fixture) request(id task.ID, messageID string) checkpoint.ClaimRequest {
	return checkpoint.ClaimRequest{
		ID: id, Task: "rag_query", MessageID: messageID, SentAt: *f.now.Load(),
		Owner: fmt.Sprint("owner-", owners.Add(1)), Until: f.in(time.Minute),
	}
}

// succeed claims a new task and commits its only step.
func (f *fixture) succeed(t *testing.T, thread string, data string) checkpoint.Committed {
	t.Helper()
	c := last(f.claim(t, thread), data)
	latest, err := f.Latest(t.Context(), thread, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(latest) > 0 {
		c.Newest = latest[0].N
	}
	done, err := f.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func last(rec checkpoint.Record, data string) checkpoint.Commit {
	return checkpoint.Commit{Record: rec, Step: "generate", Data: jsontext.Value(data), Last: true}
}

func (f *fixture) record(t *testing.T, id task.ID) checkpoint.Record {
	t.Helper()
	rec, err := f.Record(t.Context(), id)
	if err != nil {
		t.Fatalf("record of %s: %v", id, err)
	}
	return rec
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error is %v, want %v", got, want)
	}
}

// faulty is a DynamoDB client that misbehaves when it is told to.
type faulty struct {
	checkpoint.API
	repeat atomic.Bool  // every write reaches the table twice, and only the second answer comes back
	cancel atomic.Value // []string: the codes with which the next transaction is cancelled, before it reaches the table
	before atomic.Value // func(): called once before the next transaction
}

func (f *faulty) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if f.repeat.Load() {
		_, _ = f.API.PutItem(ctx, in, o...)
	}
	return f.API.PutItem(ctx, in, o...)
}

func (f *faulty) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if f.repeat.Load() {
		_, _ = f.API.UpdateItem(ctx, in, o...)
	}
	return f.API.UpdateItem(ctx, in, o...)
}

func (f *faulty) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	if fn, ok := f.before.Swap((func())(nil)).(func()); ok && fn != nil {
		fn()
	}
	if codes, ok := f.cancel.Swap([]string(nil)).([]string); ok && codes != nil {
		var reasons []types.CancellationReason
		for _, code := range codes {
			reasons = append(reasons, types.CancellationReason{Code: aws.String(code)})
		}
		return nil, &types.TransactionCanceledException{CancellationReasons: reasons}
	}
	if f.repeat.Load() {
		_, _ = f.API.TransactWriteItems(ctx, in, o...)
		in.ClientRequestToken = nil // as if it came after the ten minutes for which DynamoDB knows it
	}
	return f.API.TransactWriteItems(ctx, in, o...)
}
