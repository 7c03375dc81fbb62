// Package lambda runs unmodified Lambda function binaries on this machine.
//
// A [Function] starts the binary in processes of its own, speaks the Lambda Runtime API with them and ends an invocation
// the way AWS Lambda does: with a response, a function error, a timeout, a crash or a failed init. [Handler] puts the
// Invoke API of Lambda in front of functions, [Async] its asynchronous invocation with two retries.
//
// What differs from AWS: the memory limit is reported and not enforced, a process is not frozen between invocations, and
// the log lines of the platform are in the plain text format whatever the function's own log format is.
package lambda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// Errors of an invocation that did not take place, or whose end is unknown to the caller. What the function itself got
// wrong is no error but a [Result] with a FunctionError.
var (
	// ErrThrottled says that all processes are busy; Lambda answers 429 TooManyRequestsException.
	ErrThrottled = errors.New("rate exceeded: all processes of the function are busy")
	// ErrPayloadTooLarge says that the event is larger than Lambda takes (413).
	ErrPayloadTooLarge = errors.New("request entity too large")
	// ErrClosed says that the function is closed, or was closed before the invocation had ended.
	ErrClosed = errors.New("function is closed")
)

// Result is the end of an invocation that took place.
type Result struct {
	// Payload is the function's answer or, with a FunctionError, the error object: {"errorType","errorMessage",…}.
	Payload []byte
	// FunctionError is empty on success and "Unhandled" when the function failed, crashed or ran out of time.
	FunctionError string
	// RequestID names the invocation in the function's context and in the log.
	RequestID string
	// Duration is the time in the handler; after a failed init also that of the second init, as Lambda counts it.
	Duration time.Duration
	// InitDuration is the time that a cold start took; zero for a process that was there.
	InitDuration time.Duration
	// MaxMemoryMiB is the peak of the process's resident memory; zero where the system does not tell.
	MaxMemoryMiB int
	// LogTail holds the last 4 KB of the invocation's log.
	LogTail []byte
}

// Function is one Lambda function with its processes. Its methods may be called concurrently.
type Function struct {
	config Config
	output sync.Mutex

	environments []*environment
	started      atomic.Int64 // processes so far

	mu          sync.Mutex
	free        []*environment
	warming     int
	reserved    *int
	permissions []Permission
	changed     chan struct{} // closed and replaced when a warming environment becomes free
	closed      bool
	busy        sync.WaitGroup
	abort       chan struct{}
	aborted     sync.Once
}

// New describes a function; nothing is started before the first Invoke or Warm.
func New(config Config) *Function {
	f := &Function{config: config.withDefaults(), changed: make(chan struct{}), abort: make(chan struct{})}
	for range f.config.Concurrency {
		f.environments = append(f.environments, &environment{function: f})
	}
	f.free = slices.Clone(f.environments)
	return f
}

// Name is the function's name.
func (f *Function) Name() string { return f.config.Name }

// Timeout is how long one invocation may take.
func (f *Function) Timeout() time.Duration { return f.config.Timeout }

// ARN is the function's Amazon resource name.
func (f *Function) ARN() string {
	return fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", f.config.Region, f.config.AccountID, f.config.Name)
}

// Invoke runs the function once, synchronously. An empty payload reaches the function as {}.
//
// It fails with [ErrThrottled] when all processes are busy, with [ErrPayloadTooLarge] and with [ErrClosed]. When ctx ends
// first it returns ctx's error and the request id, and the invocation runs on to its end, as on AWS, where a client that
// hangs up does not stop the function.
func (f *Function) Invoke(ctx context.Context, payload []byte) (Result, error) {
	return f.invoke(ctx, uuid.NewString(), payload)
}

func (f *Function) invoke(ctx context.Context, requestID string, payload []byte) (Result, error) {
	if len(payload) > MaxPayload {
		return Result{}, fmt.Errorf("invoke %s with %d bytes: %w (limit %d bytes)", f.config.Name, len(payload), ErrPayloadTooLarge, MaxPayload)
	}
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	env, err := f.take(ctx, false)
	if err != nil {
		return Result{}, fmt.Errorf("invoke %s: %w", f.config.Name, err)
	}
	type end struct {
		result Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		result, err := env.invoke(requestID, traceOf(ctx), payload)
		f.put(env, false)
		ended <- end{result, err}
	}()
	select {
	case e := <-ended:
		if e.err != nil {
			return e.result, fmt.Errorf("invoke %s: %w", f.config.Name, e.err)
		}
		return e.result, nil
	case <-ctx.Done():
		return Result{RequestID: requestID}, fmt.Errorf("invoke %s, which runs on: %w", f.config.Name, context.Cause(ctx))
	}
}

// Warm starts one process more, up to Concurrency, and waits until it asks for its first event. An [InitError] says that
// it never did. When ctx ends first the process is killed.
func (f *Function) Warm(ctx context.Context) error {
	env, err := f.take(ctx, true)
	if errors.Is(err, ErrThrottled) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("warm %s: %w", f.config.Name, err)
	}
	defer f.put(env, true)
	if err := env.warm(ctx); err != nil {
		return fmt.Errorf("warm %s: %w", f.config.Name, err)
	}
	return nil
}

// Signal sends a signal to the group of the process with the given id, and tells whether there is such a process. The id is
// the function's name, a hyphen and a number; the process's SDK sends it with each request, as app/<id> in the User-Agent
// header. The function treats what becomes of the process like any other end: SIGKILL is a crash, and an invocation of
// a process that SIGSTOP froze times out.
func (f *Function) Signal(id string, signal syscall.Signal) bool {
	for _, env := range f.environments {
		if p := env.current(); p != nil && p.id == id {
			return p.signal(signal)
		}
	}
	return false
}

// Close refuses further invocations, ends the idle processes and waits for the busy ones until ctx ends; those that still
// run then are killed, with everything they started, and their callers get [ErrClosed]. After Close no process is left.
// It returns ctx's error when it had to kill.
func (f *Function) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	idle := f.free
	f.free = nil
	f.mu.Unlock()

	var stopping sync.WaitGroup
	for _, env := range idle {
		stopping.Go(env.stop)
	}
	done := make(chan struct{})
	go func() {
		f.busy.Wait()
		stopping.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		f.aborted.Do(func() { close(f.abort) })
		<-done
		return fmt.Errorf("close %s, killed what still ran: %w", f.config.Name, context.Cause(ctx))
	}
}

// take hands out a free environment: one with a live process for an invocation, one without for warming. An invocation
// waits for a process that is being warmed rather than being throttled by it.
func (f *Function) take(ctx context.Context, toWarm bool) (*environment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if f.closed {
			return nil, ErrClosed
		}
		if !toWarm && f.exhausted() {
			return nil, ErrThrottled
		}
		if env := f.pick(toWarm); env != nil {
			f.busy.Add(1)
			if toWarm {
				f.warming++
			}
			return env, nil
		}
		if toWarm || f.warming == 0 {
			return nil, ErrThrottled
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// pick removes the best environment from the free ones: the most recently used with the wanted state, else, for an
// invocation, any.
func (f *Function) pick(toWarm bool) *environment {
	chosen := -1
	for i, env := range f.free {
		if live := env.live(); live == !toWarm || (chosen < 0 && !toWarm) {
			chosen = i
		}
	}
	if chosen < 0 {
		return nil
	}
	env := f.free[chosen]
	f.free = append(f.free[:chosen], f.free[chosen+1:]...)
	return env
}

// put gives an environment back, or ends it when the function was closed meanwhile.
func (f *Function) put(env *environment, warmed bool) {
	defer f.busy.Done()
	f.mu.Lock()
	if warmed {
		f.warming--
		close(f.changed)
		f.changed = make(chan struct{})
	}
	closed := f.closed
	if !closed {
		f.free = append(f.free, env)
	}
	f.mu.Unlock()
	if closed {
		env.stop()
	}
}
