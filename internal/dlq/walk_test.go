package dlq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/dlq"
)

// vanished is a queue whose only message is gone as soon as it was received: its visibility cannot be changed any more.
type vanished struct {
	dlq.API
	received bool
}

func (v *vanished) ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if v.received {
		return &sqs.ReceiveMessageOutput{}, nil
	}
	v.received = true
	return &sqs.ReceiveMessageOutput{Messages: []types.Message{{MessageId: aws.String("m-1"), ReceiptHandle: aws.String("r-1")}}}, nil
}

func (v *vanished) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	for _, e := range in.Entries {
		out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("InvalidParameterValue")})
	}
	return out, nil
}

// A message that is deleted while it is to be hidden for longer is no trouble. One that is held all the same is told before
// others can see it.
func TestOnlyWhatIsHeldIsMissed(t *testing.T) {
	t.Parallel()
	const hide = 30 * time.Second
	for name, deleted := range map[string]bool{"deleted": true, "held": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var logs bytes.Buffer
				w := &dlq.Walk{SQS: &vanished{}, URL: "http://sqs/dead", Hide: hide, Renew: true, Logger: slog.New(slog.NewTextHandler(&logs, nil))}
				enough := errors.New("enough")
				_, err := w.Pass(t.Context(), func() bool { return true }, func([]types.Message) error {
					<-time.After(hide/3 + time.Millisecond) // the call that tells its end comes after the one that hides it for longer
					if deleted {
						w.Gone("m-1")
					}
					<-time.After(hide / 2)
					return enough
				})
				if !errors.Is(err, enough) {
					t.Fatalf("Pass: got %v, want %v", err, enough)
				}
				if told := strings.Contains(logs.String(), "others may see it"); told == deleted {
					t.Errorf("logged %q, want that it is not kept hidden: %v", logs.String(), !deleted)
				}
			})
		})
	}
}
