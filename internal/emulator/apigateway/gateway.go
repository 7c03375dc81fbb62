// Package apigateway is the front door that an API Gateway HTTP API is to a Lambda function: it turns an HTTP request
// into an event of payload format 2.0, invokes the function, and turns what it returned into an HTTP answer.
//
// Source: API Gateway Developer Guide, "Create AWS Lambda proxy integrations for HTTP APIs", "Create routes for HTTP
// APIs", "Quotas for configuring and running an HTTP API". Where the guide is silent the behaviour follows what others
// measured against the service; such places say so.
package apigateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"agentworker/internal/emulator/lambda"
)

const (
	// DefaultMaxBody is the largest request body that an HTTP API takes, in bytes.
	DefaultMaxBody = 10 << 20
	// DefaultTimeout is how long an HTTP API waits for a function.
	DefaultTimeout = 30 * time.Second

	statusClientGone = 499 // for the log; no one is left to read it
)

// Invoker is the function behind the API. An error means that the function could not be invoked at all: for
// lambda.ErrPayloadTooLarge the API answers 413, for lambda.ErrThrottled 503, for others 500.
type Invoker interface {
	Invoke(ctx context.Context, payload []byte) (lambda.Result, error)
}

// Config describes an API. Routes and Function are required.
type Config struct {
	// Routes are route keys: "GET /tasks/{task_id}", "ANY /files/{path+}", "$default". All lead to Function.
	Routes   []string
	Function Invoker
	// MaxBody is in bytes; 0 means DefaultMaxBody.
	MaxBody int64
	// Timeout is how long to wait for Function; 0 means DefaultTimeout. The invocation itself goes on, as it does in AWS.
	Timeout time.Duration
	// AccountID, APIID and DomainName are what the event says; empty means made-up ones.
	AccountID, APIID, DomainName string
	// Logger hears one line a request. Nil: slog.Default.
	Logger *slog.Logger
}

// Gateway is an http.Handler, safe for concurrent use.
type Gateway struct {
	config Config
	routes []route

	life   context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup
}

// New makes the front door. It reports every route key that is malformed or given twice.
func New(config Config) (*Gateway, error) {
	config.MaxBody = or(config.MaxBody, DefaultMaxBody)
	config.Timeout = or(config.Timeout, DefaultTimeout)
	config.AccountID = or(config.AccountID, "000000000000")
	config.APIID = or(config.APIID, "local")
	config.DomainName = or(config.DomainName, config.APIID+".execute-api.localhost")
	config.Logger = or(config.Logger, slog.Default())
	if config.Function == nil {
		return nil, errors.New("apigateway: Function is missing: give the function that the routes lead to")
	}
	routes, err := parseRoutes(config.Routes)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	return &Gateway{config: config, routes: routes, life: life, cancel: cancel}, nil
}

// Close cancels the invocations whose client has already had its answer or gone away, and waits for them to return. Call
// it after the server that uses the handler has shut down.
func (g *Gateway) Close() error {
	g.cancel()
	g.calls.Wait()
	return nil
}

// ServeHTTP serves one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id := uuid.NewString()
	status, key, err := g.serve(w, r, start, id)
	attrs := []any{
		"method", r.Method, "path", r.URL.Path, "route", key, "status", status,
		"request_id", id, "duration", time.Since(start),
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	level := slog.LevelInfo
	if status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	g.config.Logger.Log(r.Context(), level, "http request", attrs...)
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, now time.Time, id string) (status int, key string, err error) {
	w.Header().Set("Apigw-Requestid", id)
	match, ok := find(g.routes, r.Method, r.URL.Path)
	if !ok {
		return refuse(w, http.StatusNotFound, "Not Found"), "", nil
	}
	key = match.route.key
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.config.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(w, http.StatusRequestEntityTooLarge, "Request Entity Too Large"), key, nil
	case err != nil:
		return refuse(w, http.StatusBadRequest, "Bad Request"), key, fmt.Errorf("read the body: %w", err)
	}
	if r.Header.Get(traceHeader) == "" {
		r.Header.Set(traceHeader, traceID(now))
	}
	payload, err := g.event(r, match, body, now, id)
	if err != nil {
		return refuse(w, http.StatusInternalServerError, "Internal Server Error"), key, err
	}

	response, err := g.invoke(r.Context(), r.Header.Get(traceHeader), payload)
	switch {
	case err != nil && r.Context().Err() != nil:
		return refuse(w, statusClientGone, "Client Closed Request"), key, err
	case errors.Is(err, lambda.ErrPayloadTooLarge):
		// A body that the API takes can still make an event that Lambda does not.
		return refuse(w, http.StatusRequestEntityTooLarge, "Request Entity Too Large"), key, err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, lambda.ErrThrottled):
		return refuse(w, http.StatusServiceUnavailable, "Service Unavailable"), key, err
	case err != nil:
		return refuse(w, http.StatusInternalServerError, "Internal Server Error"), key, err
	case response.FunctionError != "":
		err := fmt.Errorf("function error %s: %s", response.FunctionError, clip(response.Payload))
		return refuse(w, http.StatusInternalServerError, "Internal Server Error"), key, err
	}
	answer, err := parseAnswer(response.Payload)
	if err != nil {
		return refuse(w, http.StatusInternalServerError, "Internal Server Error"), key, err
	}
	answer.write(w)
	return answer.status, key, nil
}

// traceHeader names the request's X-Ray trace, which the function's invocation belongs to as well.
const traceHeader = "X-Amzn-Trace-Id"

// invoke waits for the function for the configured time. The function is not cancelled with the request: neither a
// client that hangs up nor the gateway's own timeout ends an invocation in AWS.
func (g *Gateway) invoke(ctx context.Context, trace string, payload []byte) (lambda.Result, error) {
	type outcome struct {
		response lambda.Result
		err      error
	}
	done := make(chan outcome, 1)
	g.calls.Go(func() {
		response, err := g.config.Function.Invoke(lambda.WithTrace(g.life, trace), payload)
		done <- outcome{response, err}
	})
	ctx, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	select {
	case o := <-done:
		return o.response, o.err
	case <-ctx.Done():
		return lambda.Result{}, fmt.Errorf("wait for the function: %w", ctx.Err())
	}
}

// refuse answers in the gateway's own name.
func refuse(w http.ResponseWriter, status int, message string) int {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"message":"`+message+`"}`)
	return status
}

func clip(text []byte) []byte {
	const most = 500
	if len(text) <= most {
		return text
	}
	return append(bytes.Clone(text[:most]), "…"...)
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
