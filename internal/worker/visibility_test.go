package worker_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// picky refuses one entry of each batch, and says nothing of another.
type picky struct {
	queue
	sizes []int
}

func (q *picky) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	q.sizes = append(q.sizes, len(in.Entries))
	out := &sqs.ChangeMessageVisibilityBatchOutput{Failed: []types.BatchResultErrorEntry{{Id: in.Entries[0].Id, Code: aws.String("ReceiptHandleIsInvalid")}}}
	for _, e := range in.Entries[2:] {
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

// Case: delete batch > 10 (25 records with backoff)
// Case: partial send or delete (Failed entries, and entries in no list of the answer)
func TestTwentyFiveRecordsComeBackInCallsOfTen(t *testing.T) {
	t.Parallel()
	q := &picky{queue: queue{after: map[string][]int32{}}}
	f := setUp(t, script{"fail": func(context.Context, task.Run) (string, error) {
		return "", task.RetryAfter(errors.New("no"), 30*time.Second)
	}}, func(c *worker.Config) { c.Queue = q })
	var batch []events.SQSMessage
	for range 26 {
		_, m := newTask("fail")
		m.EventSourceARN = orderedARN
		m.Attributes["SequenceNumber"], m.Attributes["MessageGroupId"] = "1", "g"
		batch = append(batch, m)
	}
	wantFailed(t, f.handle(t, batch...), batch...)
	if got := fmt.Sprint(q.sizes); got != "[10 10 5]" {
		t.Errorf("batch calls have %s entries, want [10 10 5]", got)
	}
	logged := map[string]bool{}
	for line := range strings.Lines(f.log.String()) {
		if strings.Contains(line, "visibility not changed") {
			for i, m := range batch {
				if strings.Contains(line, m.MessageId) {
					logged[fmt.Sprint(i)] = true
				}
			}
		}
	}
	for _, i := range []int{1, 2, 11, 12, 21, 22} {
		if !logged[fmt.Sprint(i)] || len(logged) != 6 {
			t.Errorf("log lines about %v, want them about the records 1 2 11 12 21 22, which were refused or forgotten", logged)
			break
		}
	}
}

// A worker that could send would need no more than a bug to feed itself for ever, and Lambda cuts such a chain after 16 hops.
//
// Case: self re-enqueue (an agent that needs many continuations)
func TestAWorkerCannotSend(t *testing.T) {
	t.Parallel()
	api := reflect.TypeFor[worker.Queue]()
	for i := range api.NumMethod() {
		if name := api.Method(i).Name; !strings.HasPrefix(name, "ChangeMessageVisibility") {
			t.Errorf("the worker can call %s, want it to change visibilities only", name)
		}
	}
}
