package telemetry

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// A trace follows a request from the API through the queue into the worker. X-Ray names it in a header, which Lambda hands
// to each invocation and SQS carries as a message's AWSTraceHeader:
//
//	Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1
//
// Source: AWS X-Ray Developer Guide, "AWS X-Ray concepts", tracing header.

// rootForm is compiled when the first header is read.
var rootForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^1-[0-9a-f]{8}-[0-9a-f]{24}$`) })

// TraceRoot is the id of the trace that a header belongs to; "" when it names none. Whatever else the header may say, the id is
// safe to be logged.
func TraceRoot(header string) string {
	for field := range strings.SplitSeq(header, ";") {
		if root, ok := strings.CutPrefix(strings.TrimSpace(field), "Root="); ok && rootForm().MatchString(root) {
			return root
		}
	}
	return ""
}

type traceKey struct{}

// WithTraceID returns a context of work that belongs to a trace, such as a message's; "" changes nothing.
func WithTraceID(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, id)
}

// TraceID is the id of the trace that the work under ctx belongs to: the one that [WithTraceID] gave, otherwise the
// invocation's; "" outside of an invocation.
func TraceID(ctx context.Context) string {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		return id
	}
	return TraceRoot(TraceHeader(ctx))
}

// TraceHeader is the tracing header of the invocation under ctx, "" outside of one. It also counts the hops of a message from
// function to queue to function, by which Lambda stops loops: it is passed on as it is.
func TraceHeader(ctx context.Context) string {
	header, _ := ctx.Value("x-amzn-trace-id").(string) // the key is aws-lambda-go's
	return header
}

// NewLogger writes Lambda's JSON log lines, each with the request's and, where there is one, the trace's id.
func NewLogger() *slog.Logger { return slog.New(traced{lambdacontext.NewLogHandler()}) }

// traced adds the trace's id to each line.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if id := TraceID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
