package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// silent is a queue whose batch calls get no answer.
type silent struct{ queue }

func (*silent) ChangeMessageVisibilityBatch(ctx context.Context, _ *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An invocation that ran into its timeout would bring back what has succeeded, too.
//
// Case: timeout mid-batch (SQS does not answer when a record is to be handed back)
func TestASilentQueueDoesNotCostTheBatchItsAnswer(t *testing.T) {
	t.Parallel()
	inBubble(t, script{"fail": func(ctx context.Context, _ task.Run) (string, error) {
		<-ctx.Done()
		return "", errors.New("no")
	}}, func(t *testing.T, f *fixture) {
		t.Helper()
		good, m := newTask("a")
		_, head := newTask("fail")
		_, behind := newTask("a")
		for _, m := range []events.SQSMessage{head, behind} {
			m.Attributes["SequenceNumber"], m.Attributes["MessageGroupId"] = "1", "g"
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		failed := f.handleIn(ctx, t, m, head, behind)
		if left, _ := ctx.Deadline(); time.Until(left) <= 0 {
			t.Error("the answer came after the function's deadline")
		}
		wantFailed(t, failed, head, behind)
		f.wantStatus(t, good, checkpoint.Succeeded, "")
	}, func(c *worker.Config) { c.Queue = &silent{queue{after: map[string][]int32{}}} })
}
