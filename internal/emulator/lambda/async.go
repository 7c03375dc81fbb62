package lambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
)

// AsyncConfig sets how asynchronous invocations are retried.
// Source: AWS Lambda Developer Guide, "How Lambda handles errors and retries with asynchronous invocation".
type AsyncConfig struct {
	// RetryDelay is the time before the first retry after a function error; the second waits twice as long. Zero means
	// one minute, as on AWS.
	RetryDelay time.Duration
	// ThrottleDelay is the time before the first retry after a throttle; it doubles up to 5 minutes. Zero means 1 s.
	ThrottleDelay time.Duration
	// MaxAge is how long an event is retried after throttles; zero means 6 hours.
	MaxAge time.Duration
	// Done, if set, is told the end of each event. It may be called concurrently.
	Done func(AsyncResult)
	// Logger gets a line for each event that was given up; nil means slog.Default.
	Logger *slog.Logger
}

// AsyncResult is the end of one asynchronous event.
type AsyncResult struct {
	RequestID string
	Function  string
	// Attempts is how often the function ran, 0 to 3.
	Attempts int
	// Result of the last attempt.
	Result Result
	// Err says why the function could not be run; nil also when it ran and failed.
	Err error
}

// asyncRetries is how often Lambda runs a function again that failed.
const asyncRetries = 2

// maxThrottleDelay is the longest pause of Lambda's between two attempts at a throttled function.
const maxThrottleDelay = 5 * time.Minute

// Async invokes functions asynchronously: the caller waits for nothing, a failed function is run again twice under the
// same request id. Events are kept in memory only. Its methods may be called concurrently.
type Async struct {
	config AsyncConfig

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// NewAsync makes an asynchronous invoker.
func NewAsync(config AsyncConfig) *Async {
	if config.RetryDelay <= 0 {
		config.RetryDelay = time.Minute
	}
	if config.ThrottleDelay <= 0 {
		config.ThrottleDelay = time.Second
	}
	if config.MaxAge <= 0 {
		config.MaxAge = 6 * time.Hour
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	a := &Async{config: config}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Send accepts an event for the function and returns its request id at once. It fails with [ErrPayloadTooLarge] and
// [ErrClosed].
func (a *Async) Send(function *Function, payload []byte) (requestID string, err error) {
	if len(payload) > MaxAsyncPayload {
		return "", fmt.Errorf("send %d bytes to %s: %w (limit %d bytes)", len(payload), function.Name(), ErrPayloadTooLarge, MaxAsyncPayload)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return "", fmt.Errorf("send to %s: %w", function.Name(), ErrClosed)
	}
	requestID = uuid.NewString()
	a.running.Go(func() { a.run(function, requestID, payload) })
	return requestID, nil
}

// Close refuses further events and waits for the accepted ones until ctx ends; then it gives up those that wait for a
// retry, and returns ctx's error. What runs in a function is the function's to close.
func (a *Async) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	done := make(chan struct{})
	go func() { a.running.Wait(); close(done) }()
	select {
	case <-done:
		a.cancel()
		return nil
	case <-ctx.Done():
		a.cancel()
		<-done
		return fmt.Errorf("close asynchronous invocations: %w", context.Cause(ctx))
	}
}

func (a *Async) run(function *Function, requestID string, payload []byte) {
	end := AsyncResult{RequestID: requestID, Function: function.Name()}
	accepted := time.Now()
	throttle := a.config.ThrottleDelay
	for {
		end.Result, end.Err = function.invoke(a.ctx, requestID, payload)
		pause := time.Duration(0)
		switch {
		case errors.Is(end.Err, ErrThrottled) && time.Since(accepted) < a.config.MaxAge:
			pause = throttle/2 + rand.N(throttle/2+1)
			throttle = min(2*throttle, maxThrottleDelay)
		case end.Err != nil:
		default:
			end.Attempts++
			if end.Result.FunctionError != "" && end.Attempts <= asyncRetries {
				pause = a.config.RetryDelay * time.Duration(end.Attempts)
			}
		}
		if pause == 0 || !a.wait(pause) {
			break
		}
	}
	if end.Err != nil || end.Result.FunctionError != "" {
		a.config.Logger.Error("asynchronous event given up", "function", end.Function, "request_id", requestID,
			"attempts", end.Attempts, "error", end.Err, "function_error", end.Result.FunctionError)
	}
	if a.config.Done != nil {
		a.config.Done(end)
	}
}

func (a *Async) wait(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.ctx.Done():
		return false
	}
}
