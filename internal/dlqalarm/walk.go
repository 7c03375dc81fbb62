package dlqalarm

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// look is one look into a queue.
type look struct {
	queue       Queue
	arn         string // "": unknown
	approximate int    // messages by the queue's own count, those in flight included
	letters     []*letter
	emptied     bool // in the end nothing more was handed out
	err         error
}

// complete says that there is nothing in the queue beyond what was seen, as far as the queue's own count goes. In a FIFO
// queue a group gives no more than one batch while that is in flight, and others may be looking at the same time.
func (l *look) complete() bool { return l.emptied && len(l.letters) >= l.approximate }

const (
	mostLetters = 1000 // of one queue in one look: what an operator needs to know shows well before
	perCall     = 10   // Source: Amazon SQS API Reference, "ReceiveMessage" and "ChangeMessageVisibilityBatch".
	// A receive without waiting asks only some of SQS's servers and may find nothing where there is something; this
	// one asks all. Source: Amazon SQS Developer Guide, "Amazon SQS short and long polling".
	waitSeconds = 1
	// hideSpare is how much longer messages stay hidden than the look may take, so that none comes twice.
	hideSpare = 5 * time.Second
)

// walk receives what lies in the queue and makes everything visible again. Messages are hidden for no longer than that
// takes: the alarm does not count hidden ones, and a redrive does not move them.
func (h *Handler) walk(ctx context.Context, t times, q Queue) *look {
	l := &look{queue: q}
	l.err = h.attributes(ctx, t, l)
	handles := map[string]string{} // by message id: the newest receipt handle
	defer func() { h.giveBack(ctx, t, q, handles) }()
	if err := h.receive(ctx, t, l, handles); err != nil && l.err == nil {
		l.err = err
	}
	return l
}

// attributes asks for the queue's ARN and depth. SQS goes on sending a queue's metrics only while it is used; this call
// counts. Source: Amazon SQS Developer Guide, "Monitoring Amazon SQS queues using CloudWatch".
func (h *Handler) attributes(ctx context.Context, t times, l *look) error {
	ctx, cancel := context.WithDeadline(ctx, t.look)
	defer cancel()
	out, err := h.SQS.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &l.queue.URL,
		AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameQueueArn,
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		},
	})
	if err != nil {
		return fmt.Errorf("read attributes of %s: %w", l.queue.name(), err)
	}
	number := func(name types.QueueAttributeName) int {
		n, _ := strconv.Atoi(out.Attributes[string(name)]) // absent: 0
		return n
	}
	l.arn = out.Attributes[string(types.QueueAttributeNameQueueArn)]
	l.approximate = number(types.QueueAttributeNameApproximateNumberOfMessages) +
		number(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible)
	return nil
}

func (h *Handler) receive(ctx context.Context, t times, l *look, handles map[string]string) error {
	whole := time.Until(t.look)
	// A receive that is cut off may leave messages hidden whose handles are lost: none begins that might be.
	last := t.look.Add(-min(2*waitSeconds*time.Second, whole/4))
	hide := int32((whole + hideSpare).Seconds()) + 1
	ctx, cancel := context.WithDeadline(ctx, t.look)
	defer cancel()
	for len(l.letters) < mostLetters && time.Now().Before(last) {
		out, err := h.SQS.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl:                    &l.queue.URL,
			MaxNumberOfMessages:         perCall,
			VisibilityTimeout:           hide,
			WaitTimeSeconds:             waitSeconds,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			MessageAttributeNames:       []string{"All"},
		})
		if err != nil {
			return fmt.Errorf("receive from %s: %w", l.queue.name(), err)
		}
		news := false
		for _, m := range out.Messages {
			id := aws.ToString(m.MessageId)
			_, seen := handles[id]
			handles[id] = aws.ToString(m.ReceiptHandle)
			if !seen {
				news = true
				l.letters = append(l.letters, h.read(m, l.queue.fifo()))
			}
		}
		if !news {
			l.emptied = true
			return nil
		}
	}
	return nil
}

// giveBack makes messages visible again, also when the invocation has been called off. One for which it fails comes
// back by itself when its time is over.
func (h *Handler) giveBack(ctx context.Context, t times, q Queue, handles map[string]string) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), t.record)
	defer cancel()
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.URL}
	ids := []string{}
	flush := func() {
		out, err := h.SQS.ChangeMessageVisibilityBatch(ctx, in)
		if err != nil {
			h.Logger.WarnContext(ctx, "dead letters not made visible again: they come back by themselves",
				"queue", q.name(), "message_ids", fmt.Sprint(ids), "error", err)
		} else {
			codes := map[string]string{} // of the entries that were not done; "": the answer says nothing of it
			for _, e := range in.Entries {
				codes[*e.Id] = ""
			}
			for _, ok := range out.Successful {
				delete(codes, aws.ToString(ok.Id))
			}
			for _, f := range out.Failed {
				codes[aws.ToString(f.Id)] = aws.ToString(f.Code)
			}
			for i, id := range ids {
				if code, failed := codes[strconv.Itoa(i)]; failed {
					h.Logger.WarnContext(ctx, "dead letter not made visible again: it comes back by itself",
						"queue", q.name(), "message_id", id, "code", code)
				}
			}
		}
		in.Entries, ids = nil, nil
	}
	for id, handle := range handles {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(len(ids))), ReceiptHandle: &handle, VisibilityTimeout: 0,
		})
		if ids = append(ids, id); len(ids) == perCall {
			flush()
		}
	}
	if len(ids) > 0 {
		flush()
	}
}
