package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// PerCall is how many messages one call can receive, give back or delete.
	// Source: Amazon SQS API Reference, "ReceiveMessage" and "ChangeMessageVisibilityBatch".
	PerCall = 10
	// A receive without waiting asks only some of SQS's servers and may find nothing where there is something; this
	// one asks all. Source: Amazon SQS Developer Guide, "Amazon SQS short and long polling".
	waitSeconds = 1
	// mostRepeats is how many receives in a row may bring nothing but messages that the pass has had before: SQS
	// delivers more than once at times, and so does the end of a visibility timeout.
	mostRepeats = 5
)

// Walk goes through a dead-letter queue: it receives, hides what it has received from itself and others, and gives it
// back in the end. A dead-letter queue has no redrive of its own, so that a receive costs its messages nothing.
//
// Only [Walk.Gone] may be called beside the other methods.
type Walk struct {
	SQS API
	URL string
	// Hide is how long a received message stays hidden, in whole seconds. While it is, the alarm does not count it, and
	// a move task does not move it.
	Hide time.Duration
	// Renew goes on hiding what is held for as long as it is; otherwise everything has to be given back before Hide is over.
	Renew  bool
	Logger *slog.Logger

	mu   sync.Mutex
	held map[string]string // by message id: the newest receipt handle
}

// Pass receives, up to ten messages at a time, until the queue hands out nothing that the pass has not had, and shows visit
// each message once. It holds them until [Walk.Release]. Of a group of a FIFO queue, a receive may bring only the first few when
// others have come before, and never more than ten; the rest comes when these are back or deleted. Source: Amazon SQS Developer Guide, "FIFO queue delivery logic".
//
// It ends early, and emptied is false, when more says so before a receive, or at an error of its own or of visit.
func (w *Walk) Pass(ctx context.Context, more func() bool, visit func([]types.Message) error) (emptied bool, err error) {
	if w.Renew {
		stop := w.keep(ctx)
		defer stop()
	}
	had := map[string]bool{}
	for repeats := 0; more(); {
		out, err := w.SQS.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl:                    &w.URL,
			MaxNumberOfMessages:         PerCall,
			VisibilityTimeout:           int32(w.Hide / time.Second), //nolint:gosec // at most 12 hours
			WaitTimeSeconds:             waitSeconds,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			MessageAttributeNames:       []string{"All"},
		})
		if err != nil {
			return false, fmt.Errorf("receive from %s: %w", Name(w.URL), err)
		}
		var fresh []types.Message
		for _, m := range out.Messages {
			id := aws.ToString(m.MessageId)
			w.hold(id, aws.ToString(m.ReceiptHandle))
			if !had[id] {
				had[id] = true
				fresh = append(fresh, m)
			}
		}
		switch {
		case len(out.Messages) == 0:
			return true, nil
		case len(fresh) > 0:
			repeats = 0
			if err := visit(fresh); err != nil {
				return false, err
			}
		default:
			if repeats++; repeats == mostRepeats {
				return true, nil
			}
		}
	}
	return false, nil
}

func (w *Walk) hold(id, handle string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil {
		w.held = map[string]string{}
	}
	w.held[id] = handle
}

// Gone says that a message was deleted: there is nothing to give back.
func (w *Walk) Gone(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, id)
}

// Release makes the messages with the ids visible again, as far as they are held; without ids everything that is held. What
// that fails for comes back by itself.
func (w *Walk) Release(ctx context.Context, ids ...string) {
	w.mu.Lock()
	back := w.held
	if len(ids) == 0 {
		w.held = nil
	} else {
		back = map[string]string{}
		for _, id := range ids {
			if handle, ok := w.held[id]; ok {
				back[id] = handle
				delete(w.held, id)
			}
		}
	}
	w.mu.Unlock()
	w.changeVisibility(ctx, back, 0, "not made visible again: it comes back by itself", nil)
}

// keep hides what is held anew from time to time, until it is stopped.
func (w *Walk) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(w.Hide / 3)
		defer tick.Stop()
		// A message that is deleted just then fails too. Of one that is still held the next tick fails as well, in time to tell.
		var last, failed map[string]string // handles by message id
		twice := func(id, handle string) bool {
			failed[id] = handle
			return last[id] == handle
		}
		for {
			select {
			case <-tick.C:
				w.mu.Lock()
				held := maps.Clone(w.held)
				w.mu.Unlock()
				last, failed = failed, map[string]string{}
				w.changeVisibility(ctx, held, w.Hide, "not kept hidden: others may see it", twice)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// changeVisibility logs what it could not do as trouble, unless matters is given and says that it is none.
func (w *Walk) changeVisibility(ctx context.Context, messages map[string]string, d time.Duration, trouble string, matters func(id, handle string) bool) {
	ids, handles := make([]string, 0, len(messages)), make([]string, 0, len(messages))
	for id, handle := range messages {
		ids, handles = append(ids, id), append(handles, handle)
	}
	for len(ids) > 0 && ctx.Err() == nil {
		n := min(len(ids), PerCall)
		in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &w.URL}
		codes := map[string]string{} // of the entries that were not done; "": the answer says nothing of it
		for i := range n {
			entry := strconv.Itoa(i)
			codes[entry] = ""
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
				Id: &entry, ReceiptHandle: &handles[i], VisibilityTimeout: int32(d / time.Second), //nolint:gosec // at most 12 hours
			})
		}
		out, err := w.SQS.ChangeMessageVisibilityBatch(ctx, in)
		if err != nil {
			w.Logger.WarnContext(ctx, "dead letters "+trouble, "queue", Name(w.URL), "message_ids", fmt.Sprint(ids[:n]), "error", err)
		} else {
			for _, ok := range out.Successful {
				delete(codes, aws.ToString(ok.Id))
			}
			for _, f := range out.Failed {
				codes[aws.ToString(f.Id)] = aws.ToString(f.Code)
			}
			for i, id := range ids[:n] {
				if code, failed := codes[strconv.Itoa(i)]; failed && (matters == nil || matters(id, handles[i])) {
					w.Logger.WarnContext(ctx, "dead letter "+trouble, "queue", Name(w.URL), "message_id", id, "code", code)
				}
			}
		}
		ids, handles = ids[n:], handles[n:]
	}
}
