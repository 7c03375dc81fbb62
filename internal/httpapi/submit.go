package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/telemetry"
)

// submit takes a task in. The order is what keeps the promise behind a 202: the record stands before the
// message is sent, and nothing is answered before both are done. errs is what is known to be wrong.
func (a *api) submit(ctx context.Context, c *call, s submission, errs task.FieldErrors) (answer, error) {
	key, fault := idempotencyKey(c.Header)
	errs = append(errs, fault...)
	at := a.Now()
	m, err := a.check(&s, at, errs)
	if err != nil {
		return answer{}, err
	}
	m.TraceID = telemetry.TraceID(ctx)
	if err := a.checkSize(m, s.delivery); err != nil {
		return answer{}, err
	}

	var keyHash string
	if key != "" {
		reserved, err := a.reserve(ctx, c, key, s, m.ID)
		if err != nil {
			return answer{}, err
		}
		keyHash, m.ID, m.Thread = reserved.Hash, reserved.TaskID, reserved.TaskID.Thread()
		if reserved.MessageID != "" {
			return c.accepted(m, reserved.MessageID)
		}
	}
	c.taskID, c.threadID = m.ID, m.Thread

	record, created, err := a.Store.Create(ctx, m, at)
	if err != nil {
		return answer{}, err
	}
	if !created {
		if sent, err := a.resume(ctx, record); err != nil {
			return answer{}, err
		} else if sent {
			a.noteSent(ctx, c, keyHash, record.MessageID)
			return c.accepted(m, record.MessageID)
		}
	}
	messageID, err := a.send(ctx, m, s.delivery)
	if err != nil {
		a.noteFailed(ctx, c, m.ID)
		return answer{}, unavailable(CodeQueueUnavailable,
			"The task could not be queued. Send the same request again; with an Idempotency-Key it stays the same task.", err)
	}
	a.noteSent(ctx, c, keyHash, messageID)
	return c.accepted(m, messageID)
}

// resume decides about a task that an earlier request under the same key has recorded without leaving
// word of its message. sent is whether a worker has had it, which shows that it was sent.
func (a *api) resume(ctx context.Context, r checkpoint.Record) (sent bool, err error) {
	switch {
	case r.Status == checkpoint.Queued && len(r.Attempts) == 0:
		// It may have been sent all the same. A message too many does no harm: the worker knows the
		// task by its id.
		return false, nil
	case r.NeverSent():
		return false, a.Store.Requeue(ctx, r.TaskID)
	default:
		return true, nil
	}
}

// noteSent is for the retries to come. Without the note they send again, which is harmless, so that the
// task stays accepted.
func (a *api) noteSent(ctx context.Context, c *call, keyHash, messageID string) {
	if keyHash == "" || messageID == "" {
		return
	}
	if err := a.Store.KeySent(ctx, keyHash, messageID); err != nil {
		a.Logger.WarnContext(ctx, "message is queued, its idempotency key does not say so", "task_id", string(c.taskID), "error", err)
	}
}

// noteFailed tells the record that the task never reached the queue. The client may have hung up, or time
// run out, because of the very fault: the note gets time of its own.
func (a *api) noteFailed(ctx context.Context, c *call, id task.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := a.Store.SubmitFailed(ctx, id, "the message could not be put on the queue"); err != nil {
		a.Logger.WarnContext(ctx, "message could not be queued, the task's record does not say so", "task_id", string(c.taskID), "error", err)
	}
}

// noteTime is left of a request's time when sending has used up its own.
const noteTime = time.Second

// accepted is the answer to whoever submitted, the same for every retry under one key.
func (c *call) accepted(m task.Message, messageID string) (answer, error) {
	c.taskID, c.threadID, c.messageID = m.ID, m.Thread, messageID
	body, err := new(object).
		add("task_id", m.ID).
		add("message_id", messageID).
		add("thread_id", m.Thread).
		add("status", checkpoint.Queued).
		bytes()
	return answer{
		status: http.StatusAccepted,
		header: map[string]string{"Location": "/agent/tasks/" + url.PathEscape(string(m.ID)), "Retry-After": "1"},
		body:   body,
	}, err
}
