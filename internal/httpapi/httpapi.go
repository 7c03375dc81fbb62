// Package httpapi is the HTTP API: it takes tasks in, puts them on the queue, and shows what became of
// them. It also holds the adapter through which AWS Lambda feeds it.
//
// A request is either answered as the routes say or with a problem document (RFC 9457) that has a stable
// "code". Whatever a client sends, the status is below 500; 503 says that the table or the queue cannot
// be reached, and that the same request is worth sending again.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Config is what the API needs. Tasks, Store, Queue, QueueURL and OrderedQueueURL are required.
type Config struct {
	// Tasks are the types that can be submitted. POST /agent/query needs "rag_query" among them, POST
	// /agent/tickets/{ticket_id} "update_ticket".
	Tasks *task.Registry
	Store Store
	// Queue sends the messages; an *sqs.Client does.
	Queue Queue
	// QueueURL is the standard queue's, OrderedQueueURL the FIFO queue's.
	QueueURL        string
	OrderedQueueURL string
	// Caller names who sends a request; idempotency keys of different callers have nothing to do with
	// each other. nil: the one that API Gateway has authenticated, see [Adapter].
	Caller func(*http.Request) string
	// MaxBodyBytes is the largest request body. Zero or less: 1 MiB, which is all that a message can
	// carry.
	MaxBodyBytes int
	// Timeout is the longest that one request may take, besides what it asks to wait for. Both have to end
	// before the function's own timeout does, or there is nobody left to answer. Zero or less: 8 s.
	Timeout time.Duration
	// Now tells the time. nil: time.Now.
	Now func() time.Time
	// Logger gets one line for each request. nil: slog.Default().
	Logger *slog.Logger
}

// Queue is the part of Amazon SQS that submitting needs.
type Queue interface {
	SendMessage(ctx context.Context, in *sqs.SendMessageInput, opts ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// Store is the table as the API sees it; a *checkpoint.Store is one.
type Store interface {
	Submissions
	Reader
}

// Submissions keeps account of what was taken in.
type Submissions interface {
	// Create writes the task's record as queued unless there is one, which it then gives.
	Create(ctx context.Context, m task.Message, at time.Time) (existing checkpoint.Record, created bool, err error)
	// SubmitFailed notes that the message could not be sent.
	SubmitFailed(ctx context.Context, id task.ID, reason string) error
	// Requeue takes SubmitFailed back, or that the task was given up before any worker had it.
	Requeue(ctx context.Context, id task.ID) error
	// ReserveKey writes the key unless there is one, which it then gives.
	ReserveKey(ctx context.Context, k checkpoint.Key) (existing checkpoint.Key, reserved bool, err error)
	// KeySent notes that the message of the key's task is on the queue.
	KeySent(ctx context.Context, hash, messageID string) error
}

// Reader reads what is there. Every method gives [checkpoint.ErrNotFound] for what is not, except for
// History, which gives no records.
type Reader interface {
	Record(ctx context.Context, id task.ID) (checkpoint.Record, error)
	Result(ctx context.Context, thread string) (checkpoint.Result, error)
	Checkpoint(ctx context.Context, thread string, n uint64) (checkpoint.Checkpoint, error)
	Latest(ctx context.Context, thread string, upTo uint64, limit int) ([]checkpoint.Checkpoint, error)
	History(ctx context.Context, thread, after string, limit int) (records []checkpoint.Record, next string, err error)
	Ticket(ctx context.Context, id string) (task.Ticket, error)
}

// New makes the API's handler. It is safe for concurrent use.
func New(cfg Config) http.Handler {
	if cfg.Caller == nil {
		cfg.Caller = gatewayCaller
	}
	if cfg.MaxBodyBytes <= 0 {
		cfg.MaxBodyBytes = maxMessageBytes
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 8 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	a := &api{Config: cfg, mux: http.NewServeMux()}
	a.openAPI, a.page = sync.OnceValue(a.makeOpenAPI), sync.OnceValue(makePage)
	for _, route := range a.routes() {
		a.mux.HandleFunc(route.pattern(), func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), cfg.Timeout+route.patience)
			defer cancel()
			c := callOf(r)
			c.answer, c.err = route.handle(ctx, c)
		})
	}
	return a
}

type api struct {
	Config
	mux     *http.ServeMux
	openAPI func() asset // both are made when somebody asks for them
	page    func() asset
}
