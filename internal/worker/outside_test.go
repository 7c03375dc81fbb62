package worker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"agentworker/internal/checkpoint"
)

// outside is a DynamoDB client for a synctest bubble: requests go out from a goroutine that does not belong to it, since
// waiting for the network would keep the bubble from ever standing still. One request is under way at a time.
type outside struct {
	one     sync.Mutex
	api     checkpoint.API
	name    string // of the table
	jobs    chan func(checkpoint.API) (any, error)
	answers chan reply
}

func newOutside(t *testing.T, api checkpoint.API, table string) *outside {
	t.Helper()
	o := &outside{api: api, name: table, jobs: make(chan func(checkpoint.API) (any, error)), answers: make(chan reply)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for job := range o.jobs {
			out, err := job(o.api)
			o.answers <- reply{out, err}
		}
	}()
	t.Cleanup(func() { close(o.jobs); <-done })
	return o
}

func (o *outside) do(job func(checkpoint.API) (any, error)) (any, error) {
	o.one.Lock()
	defer o.one.Unlock()
	o.jobs <- job
	a := <-o.answers
	return a.out, a.err
}

func through[In, Out any](o *outside, in In, do func(checkpoint.API, context.Context, In, ...func(*dynamodb.Options)) (Out, error)) (Out, error) {
	// The bubble's contexts must not leave it.
	out, err := o.do(func(api checkpoint.API) (any, error) { return do(api, context.Background(), in) })
	return out.(Out), err
}

func (o *outside) GetItem(_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return through(o, in, checkpoint.API.GetItem)
}

func (o *outside) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return through(o, in, checkpoint.API.PutItem)
}

func (o *outside) Scan(_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return through(o, in, checkpoint.API.Scan)
}

func (o *outside) Query(_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return through(o, in, checkpoint.API.Query)
}

func (o *outside) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return through(o, in, checkpoint.API.UpdateItem)
}

func (o *outside) TransactWriteItems(_ context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return through(o, in, checkpoint.API.TransactWriteItems)
}
