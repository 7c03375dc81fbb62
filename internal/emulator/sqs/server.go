// Package sqs is a local Amazon SQS: the AWS JSON 1.0 protocol over HTTP in front of the engine in
// package engine. AWS SDKs, boto3 and the aws command line use it unchanged, with any credentials.
//
// It keeps the rules that SQS documents and is stricter than SQS where that only promises little: the
// counts are exact, every poll sees all messages, a purge is done when it is answered. Left out are
// access control (AddPermission, RemovePermission), request quotas, and the retry of a receive by
// ReceiveRequestAttemptId.
package sqs

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"agentworker/internal/emulator/sqs/engine"
)

// Options configures a Server. The zero value works in memory and in real time.
type Options struct {
	// Clock is where all times come from; nil means real time.
	Clock clockwork.Clock
	// Dir is the folder for the state, which then survives restarts and kills. Empty: in memory.
	Dir string
	// Region and AccountID are part of ARNs and URLs; empty means us-east-1 and 000000000000.
	Region, AccountID string
	// BaseURL is what queue URLs begin with, as in http://127.0.0.1:4566. Empty takes the host that
	// the request was sent to.
	BaseURL string
	// InFlightLimit is how many messages of a queue may be in flight; 0 means the 120,000 of SQS.
	InFlightLimit int
	// Logger receives faults of the server itself; nil discards them.
	Logger *slog.Logger
}

// Server answers SQS requests. It is safe for concurrent use.
type Server struct {
	engine  *engine.Engine
	account string
	base    string
	log     *slog.Logger
	actions map[string]action
}

// Open makes a server and reads what an earlier one left in Options.Dir.
func Open(opts Options) (*Server, error) {
	if opts.AccountID == "" {
		opts.AccountID = "000000000000"
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	eng, err := engine.Open(engine.Options{
		Clock: opts.Clock, Dir: opts.Dir, Region: opts.Region, AccountID: opts.AccountID,
		InFlightLimit: opts.InFlightLimit,
	})
	if err != nil {
		return nil, err
	}
	return &Server{
		engine: eng, account: opts.AccountID, base: strings.TrimSuffix(opts.BaseURL, "/"),
		log: opts.Logger, actions: actions(),
	}, nil
}

// Close ends long polls, which are answered without messages, and closes the store. Requests that
// come later are answered with 500. Call it before the HTTP server's Shutdown, which would otherwise
// wait for the long polls.
func (s *Server) Close() error { return s.engine.Close() }

// Depth is a queue's number of messages: deliverable, in flight and delayed; ok is false when there
// is no such queue.
func (s *Server) Depth(name string) (visible, notVisible, delayed int, ok bool) {
	return s.engine.Depth(name)
}

// OldestAge is how long a queue's oldest message has been kept, in flight or not; zero for an empty queue. ok is false when
// there is no such queue.
func (s *Server) OldestAge(name string) (age time.Duration, ok bool) { return s.engine.OldestAge(name) }

// maximumRequest leaves room for a batch of the maximum size in base64 or JSON escapes.
const maximumRequest = 16 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	name, ours := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	run, known := s.actions[name]
	if r.Method != http.MethodPost || !ours || !known {
		s.fail(w, &wireError{"com.amazon.coral.service#UnknownOperationException", "InvalidAction", http.StatusBadRequest},
			"The action "+name+" is not valid for this endpoint. It speaks the AWS JSON 1.0 protocol: "+
				"POST with X-Amz-Target: AmazonSQS.<Action>.")
		return
	}
	// The whole body has to be read before the server can notice that the client hangs up.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maximumRequest))
	if err != nil {
		s.fail(w, &wireError{"com.amazon.coral.service#SerializationException", "", http.StatusRequestEntityTooLarge},
			"The request could not be read: "+err.Error())
		return
	}
	answer, err := run(&call{Server: s, http: r}, body)
	if err != nil {
		s.refuse(w, r, name, err)
		return
	}
	s.send(w, http.StatusOK, answer)
}
