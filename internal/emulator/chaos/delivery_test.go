package chaos_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/emulator/chaos"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

type invocations struct{ n atomic.Int64 }

func (i *invocations) Invoke(context.Context, []byte) (lambda.Result, error) {
	n := i.n.Add(1)
	return lambda.Result{Payload: []byte{byte(n)}}, nil
}

func injector(t *testing.T, plan string) *chaos.Injector {
	t.Helper()
	return watched(t, plan, nil)
}

func watched(t *testing.T, plan string, injected func(chaos.Injection)) *chaos.Injector {
	t.Helper()
	p, err := chaos.Parse(plan)
	if err != nil {
		t.Fatal(err)
	}
	return chaos.New(*p, chaos.Watch{Injected: injected})
}

func TestDuplicate(t *testing.T) {
	t.Parallel()
	inner := &invocations{}
	ways := map[string]int{}
	outer := watched(t, "duplicate=1", func(i chaos.Injection) { ways[i.What]++ }).Function(inner)
	const batches = 30
	for range batches {
		if _, err := outer.Invoke(t.Context(), []byte(`{"Records":[{"body":"{}"}]}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := inner.n.Load(); got != 2*batches {
		t.Errorf("%d batches made %d invocations, want twice as many", batches, got)
	}
	if ways["side by side"] == 0 || ways["one after the other"] == 0 {
		t.Errorf("they were delivered %v, want both ways", ways)
	}
}

// queue counts what reaches SQS.
type queue struct {
	mapping.SQSAPI
	deleted int
}

func (q *queue) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	q.deleted += len(in.Entries)
	out := &sqs.DeleteMessageBatchOutput{}
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func TestDeletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan                        string
		deleted, successful, failed int
		err                         bool
	}{
		{"lost-delete=1", 0, 3, 0, false},
		{"partial=1", 1, 1, 2, false},
		{"sqs=1", 0, 0, 0, true},
		{"all=0", 3, 3, 0, false},
	} {
		q := &queue{}
		out, err := injector(t, c.plan).Queue(q).DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{
			QueueUrl: aws.String("q"), Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("0")}, {Id: aws.String("1")}, {Id: aws.String("2")}},
		})
		if (err != nil) != c.err || q.deleted != c.deleted {
			t.Errorf("%s: %d deleted, %v; want %d", c.plan, q.deleted, err, c.deleted)
		}
		if out != nil && (len(out.Successful) != c.successful || len(out.Failed) != c.failed) {
			t.Errorf("%s: told %d successful and %d failed, want %d and %d", c.plan, len(out.Successful), len(out.Failed), c.successful, c.failed)
		}
	}
}

func TestAlarmTwice(t *testing.T) {
	t.Parallel()
	events := 0
	if err := injector(t, "alarm=1").Action(func([]byte) error { events++; return nil })(nil); err != nil || events != 2 {
		t.Errorf("one event was delivered %d times (%v), want twice", events, err)
	}
}

// Without a plan nothing is in the way.
func TestNilInjectsNothing(t *testing.T) {
	t.Parallel()
	var none *chaos.Injector
	f, q := &invocations{}, &queue{}
	if none.Function(f) != mapping.Invoker(f) || none.Queue(q) != mapping.SQSAPI(q) {
		t.Error("a nil injector wraps")
	}
	none.Reach()
	none.Stop()
	if none.Strike(chaos.Kill, "k", chaos.Injection{}) {
		t.Error("a nil injector strikes")
	}
}
