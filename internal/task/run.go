package task

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"
)

// Run is one attempt at a task, as its handler sees it. It belongs to the handler's goroutine:
// steps run one after another.
type Run interface {
	// ID is the task's id.
	ID() ID
	// Attempt counts the deliveries of the task to a worker, from 1.
	Attempt() int
	// Turns are the thread's newest results before this task began, oldest first, a bounded number.
	Turns() []Turn
	// Tokens is what the task's committed steps have used, in all attempts; see [Effects.UseTokens].
	Tokens() Tokens
	// Execute runs a step, or reads it back when it has been committed by an earlier attempt.
	// Handlers call it through [Step] and [LastStep].
	Execute(ctx context.Context, step StepFunc) (jsontext.Value, error)
}

// Turn is the result of an earlier task of the thread.
type Turn struct {
	TaskID ID
	Task   string         // the task's type
	Data   jsontext.Value // its result
}

// Tokens counts what models read and wrote, in their own units. The zero value is none.
type Tokens struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// Plus is the sum of both.
func (t Tokens) Plus(u Tokens) Tokens { return Tokens{t.Input + u.Input, t.Output + u.Output} }

// Total is input and output together.
func (t Tokens) Total() int64 { return t.Input + t.Output }

// StepFunc is a step before it is run.
type StepFunc struct {
	Name string // unique within the task; 1 to 100 bytes
	Last bool   // its output is the task's result, committed together with the task's success
	Do   func(ctx context.Context, effects *Effects) (jsontext.Value, error)
}

// Effects is what a step has at hand besides its return value.
type Effects struct {
	key    string
	ticket *Ticket
	tokens Tokens
	last   bool
}

// NewEffects is for implementations of [Run]. The key is the step's effect key.
func NewEffects(key string) *Effects { return &Effects{key: key} }

// EffectKey is the step's effect key: the same at every attempt of the task at this step.
func EffectKey(id ID, step string) string { return string(id) + "/" + step }

// Key is to be sent as the idempotency key of any call to the outside: a step that died before it was
// committed runs again under the same key.
func (e *Effects) Key() string { return e.key }

// SetTicket changes the ticket in the same transaction as the step's checkpoint. t.Version is the version
// that the change makes, one above the one that was read; when another task has changed
// the ticket since then, the step is run again.
func (e *Effects) SetTicket(t Ticket) { e.ticket = &t }

// Ticket is the change that [Effects.SetTicket] left behind, nil when there is none.
func (e *Effects) Ticket() *Ticket { return e.ticket }

// UseTokens says that the step has used tokens of a model. Several calls add up; negative numbers count as 0. What a task
// has used stands in its record and in the metrics.
func (e *Effects) UseTokens(in, out int) {
	e.tokens = e.tokens.Plus(Tokens{int64(max(in, 0)), int64(max(out, 0))})
}

// Tokens is the sum of what [Effects.UseTokens] was told.
func (e *Effects) Tokens() Tokens { return e.tokens }

// Finish makes the running step the last one, as if [LastStep] had begun it: for handlers that learn only from a
// step's outcome that nothing is left to do. It has no effect when the step fails.
func (e *Effects) Finish() { e.last = true }

// Finished reports whether [Effects.Finish] was called.
func (e *Effects) Finished() bool { return e.last }

// Step runs fn once in the task's life: its output is committed as a checkpoint before Step returns, and
// a later attempt reads it back instead of running fn again. A step that dies before that runs again
// under the same effect key. Steps of one task have distinct names and always come in the same order.
//
// When too little of the attempt's time is left for another step, fn is not run, and the error is [Continue]'s: the
// handler returns it, and the next delivery goes on with this step.
func Step[T any](ctx context.Context, run Run, name string, fn func(ctx context.Context, effects *Effects) (T, error)) (T, error) {
	return execute(ctx, run, name, false, fn)
}

// LastStep is a [Step] whose output is the task's result, committed in one transaction with the task's
// success. No step may follow it.
func LastStep[T any](ctx context.Context, run Run, name string, fn func(ctx context.Context, effects *Effects) (T, error)) (T, error) {
	return execute(ctx, run, name, true, fn)
}

func execute[T any](ctx context.Context, run Run, name string, last bool, fn func(context.Context, *Effects) (T, error)) (T, error) {
	var out T
	raw, err := run.Execute(ctx, StepFunc{Name: name, Last: last, Do: func(ctx context.Context, effects *Effects) (jsontext.Value, error) {
		v, err := fn(ctx, effects)
		if err != nil {
			return nil, err
		}
		return marshal(v)
	}})
	if err != nil {
		return out, err
	}
	// Also the step that has just run is read back from its JSON, so that the first attempt and a
	// resumed one go on with the same value.
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, Failf(CodeStepsChanged, "step %q: its committed output no longer fits: %w", name, err)
	}
	return out, nil
}

func marshal(v any) (jsontext.Value, error) {
	raw, err := json.Marshal(v, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, Permanent(fmt.Errorf("encode a step's output: %w", err))
	}
	return raw, nil
}

// Go runs fns side by side and waits for all of them. It gives the first error, and ends the
// others' context with it. A panic in one of them becomes an error of this task alone; a panic in
// a goroutine that is started with a bare go statement ends the whole worker process.
func Go(ctx context.Context, fns ...func(ctx context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, fn := range fns {
		g.Go(func() error { return Guard(func() error { return fn(ctx) }) })
	}
	return g.Wait()
}

// PanicError is a panic that was caught.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Guard calls fn and turns a panic into an error with [CodePanic] that wraps a [PanicError].
func Guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = WithCode(CodePanic, &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	return fn()
}
