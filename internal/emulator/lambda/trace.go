package lambda

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

type traceKey struct{}

// WithTrace returns a context whose invocations carry this X-Ray tracing header, for example one that came with the
// message that causes the invocation. Without it each invocation gets a new one, unsampled.
func WithTrace(ctx context.Context, header string) context.Context {
	return context.WithValue(ctx, traceKey{}, header)
}

// Trace returns the header that WithTrace put into the context; empty if none.
func Trace(ctx context.Context) string {
	header, _ := ctx.Value(traceKey{}).(string)
	return header
}

func traceOf(ctx context.Context) string {
	if header := Trace(ctx); header != "" {
		return header
	}
	return NewTrace(time.Now())
}

// NewTrace makes an X-Ray tracing header of its own root, not sampled.
// Source: AWS X-Ray Developer Guide, "X-Ray concepts", tracing header.
func NewTrace(now time.Time) string {
	var random [20]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=0", now.Unix(), hex.EncodeToString(random[:12]), hex.EncodeToString(random[12:]))
}
