package httpapi

import (
	"context"
	"net/http"
	"strings"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

const (
	idempotencyHeader       = "Idempotency-Key"
	maxIdempotencyKeyLength = 255
)

// idempotencyKey is the request's key, "" when it has none.
func idempotencyKey(h http.Header) (string, task.FieldErrors) {
	values := h.Values(idempotencyHeader)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(values) > 1 || key == "" || len(key) > maxIdempotencyKeyLength || strings.ContainsFunc(key, invisible) {
		return "", task.FieldErrors{{
			Field: idempotencyHeader, Problem: "must be one header of 1 to 255 visible ASCII characters without blanks",
		}}
	}
	return key, nil
}

// reserve binds the key to what is submitted under it. The key that it gives names the task that the
// first request under it has made, and the message if that was sent.
func (a *api) reserve(ctx context.Context, c *call, key string, s submission, id task.ID) (checkpoint.Key, error) {
	body, err := s.fingerprint()
	if err != nil {
		return checkpoint.Key{}, err
	}
	k := checkpoint.Key{Hash: hash(a.Caller(c.Request), key), Body: body, TaskID: id}
	existing, reserved, err := a.Store.ReserveKey(ctx, k)
	switch {
	case err != nil:
		return checkpoint.Key{}, err
	case reserved:
		return k, nil
	case existing.Body != body:
		return checkpoint.Key{}, &problem{
			status: http.StatusConflict, code: CodeIdempotencyKeyReuse,
			detail: "This Idempotency-Key was used for another submission within the last day. Take a new key for a new task.",
		}
	}
	existing.Hash = k.Hash
	return existing, nil
}
