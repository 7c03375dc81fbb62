package task_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"agentworker/internal/task"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	in := func(err error) error { return fmt.Errorf("call the model: %w", err) }
	const none = time.Duration(-1)
	tests := map[string]struct {
		err       error
		permanent bool
		delay     time.Duration
		code      string
	}{
		"plain":              {cause, false, none, task.CodeFailed},
		"permanent":          {task.Permanent(cause), true, none, task.CodeFailed},
		"wrapped":            {in(in(task.Permanent(cause))), true, none, task.CodeFailed},
		"delayed":            {task.RetryAfter(cause, time.Minute), false, time.Minute, task.CodeFailed},
		"delayed by nothing": {task.RetryAfter(cause, 0), false, 0, task.CodeFailed},
		"delayed backwards":  {task.RetryAfter(cause, -time.Second), false, 0, task.CodeFailed},
		"delayed too long":   {task.RetryAfter(cause, 13*time.Hour), false, task.MaxDelay, task.CodeFailed},
		"coded":              {task.WithCode("BUSY", cause), false, none, "BUSY"},
		"all three":          {task.Permanent(task.RetryAfter(task.WithCode("BUSY", cause), time.Second)), true, time.Second, "BUSY"},
		"the other way":      {task.WithCode("BUSY", task.RetryAfter(task.Permanent(cause), time.Second)), true, time.Second, "BUSY"},
		"with words between": {in(task.WithCode("BUSY", in(task.RetryAfter(in(task.Permanent(cause)), time.Second)))), true, time.Second, "BUSY"},
		"outermost counts":   {task.WithCode("OUTER", task.RetryAfter(task.WithCode("INNER", task.RetryAfter(cause, time.Hour)), time.Second)), false, time.Second, "OUTER"},
		"failf":              {task.Failf("GONE", "ticket %s: %w", "TK-1", cause), true, none, "GONE"},
		"joined":             {in(errors.Join(cause, task.RetryAfter(cause, time.Second), task.Permanent(task.WithCode("GONE", cause)))), true, time.Second, "GONE"},
		"two causes":         {fmt.Errorf("%w, %w", task.WithCode("FIRST", cause), task.Permanent(task.WithCode("SECOND", cause))), true, none, "FIRST"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := task.IsPermanent(tt.err); got != tt.permanent {
				t.Errorf("permanent: got %t, want %t", got, tt.permanent)
			}
			delay, ok := task.Delay(tt.err)
			if !ok {
				delay = none
			}
			if delay != tt.delay {
				t.Errorf("delay: got %v, want %v", delay, tt.delay)
			}
			if got := task.FailureOf(tt.err); got.Code != tt.code || got.Message != tt.err.Error() {
				t.Errorf("failure: got %+v, want %s with the error's text %q", got, tt.code, tt.err)
			}
			if !errors.Is(tt.err, cause) {
				t.Errorf("%v does not wrap its cause", tt.err)
			}
		})
	}
}

func TestMarksOfNoErrorAreNoError(t *testing.T) {
	t.Parallel()
	for what, err := range map[string]error{
		"Permanent": task.Permanent(nil), "RetryAfter": task.RetryAfter(nil, time.Second), "WithCode": task.WithCode("X", nil),
	} {
		if err != nil {
			t.Errorf("%s: got an error, want nil", what)
		}
	}
	if task.IsPermanent(nil) {
		t.Error("no error is permanent")
	}
	if _, ok := task.Delay(nil); ok {
		t.Error("no error has a delay")
	}
}

func TestReasonIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"x", "é", "题", "😀"} {
		for before := range 8 {
			text := strings.Repeat("y", before) + strings.Repeat(letter, 500)
			got := task.FailureOf(errors.New(text)).Message
			if len(text) <= task.MaxReasonLength {
				if got != text {
					t.Errorf("%s after %d: got %q, want the whole text", letter, before, got)
				}
				continue
			}
			kept, cut := strings.CutSuffix(got, "…")
			if len(got) > task.MaxReasonLength || len(got) <= task.MaxReasonLength-len(letter) || !cut ||
				!utf8.ValidString(got) || !strings.HasPrefix(text, kept) {
				t.Errorf("%s after %d: got %d bytes %q, want the longest beginning of whole characters in %d bytes, and …",
					letter, before, len(got), got, task.MaxReasonLength)
			}
		}
	}
	if got := task.FailureOf(errors.New(strings.Repeat("x", task.MaxReasonLength))).Message; strings.Contains(got, "…") {
		t.Errorf("text of just the limit was cut: %q", got)
	}
}

func TestReasonIsValidText(t *testing.T) {
	t.Parallel()
	got := task.FailureOf(errors.New("model said \xff\xfe" + strings.Repeat("\x80", 1000))).Message
	if want := "model said \uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Case: goroutine panic
func TestGo(t *testing.T) {
	t.Parallel()
	t.Run("all succeed", func(t *testing.T) {
		t.Parallel()
		done := make(chan int, 3)
		say := func(n int) func(context.Context) error {
			return func(context.Context) error { done <- n; return nil }
		}
		if err := task.Go(t.Context(), say(1), say(2), say(3)); err != nil || len(done) != 3 {
			t.Errorf("got %v after %d functions, want no error after 3", err, len(done))
		}
		if err := task.Go(t.Context()); err != nil {
			t.Errorf("nothing to do: got %v", err)
		}
	})
	t.Run("side by side", func(t *testing.T) {
		t.Parallel()
		ping := make(chan struct{})
		err := task.Go(t.Context(),
			func(context.Context) error { ping <- struct{}{}; return nil },
			func(context.Context) error { <-ping; return nil })
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("panic ends the others", func(t *testing.T) {
		t.Parallel()
		ended := false
		err := task.Go(t.Context(),
			func(context.Context) error { panic("boom") },
			func(ctx context.Context) error { <-ctx.Done(); ended = true; return ctx.Err() })
		if got := task.FailureOf(err); got.Code != task.CodePanic || got.Message != "panic: boom" || !ended {
			t.Errorf("got %+v, the other one ended: %t, want %s and the other one waited for", got, ended, task.CodePanic)
		}
		var panicked *task.PanicError
		if !errors.As(err, &panicked) || !strings.Contains(string(panicked.Stack), "TestGo") {
			t.Errorf("got %v, want a panic error with the stack of where it happened", err)
		}
	})
	t.Run("first error", func(t *testing.T) {
		t.Parallel()
		err := task.Go(t.Context(),
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			func(context.Context) error { return task.Failf("GONE", "no such model") })
		if got := task.FailureOf(err); got.Code != "GONE" || !task.IsPermanent(err) {
			t.Errorf("got %+v, want GONE for good", got)
		}
	})
	t.Run("the caller's context ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		err := task.Go(ctx,
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			func(context.Context) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}

func TestGuard(t *testing.T) {
	t.Parallel()
	var nilMap map[string]int
	var nilFunc func() error
	tests := map[string]struct {
		fn   func() error
		code string
		text string
	}{
		"no error":       {func() error { return nil }, "", ""},
		"error":          {func() error { return io.EOF }, task.CodeFailed, "EOF"},
		"panic":          {func() error { panic("boom") }, task.CodePanic, "panic: boom"},
		"panic of nil":   {func() error { panic(nil) }, task.CodePanic, "panic: panic called with nil"},
		"panic of error": {func() error { panic(task.Permanent(io.EOF)) }, task.CodePanic, "panic: EOF"},
		"runtime error":  {func() error { nilMap["x"] = 1; return nil }, task.CodePanic, "panic: assignment to entry in nil map"},
		"no function":    {nilFunc, task.CodePanic, "panic: runtime error: invalid memory address"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := task.Guard(tt.fn)
			if tt.code == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("got no error, want %s", tt.code)
			}
			if got := task.FailureOf(err); got.Code != tt.code || !strings.HasPrefix(got.Message, tt.text) {
				t.Errorf("got %+v, want %s %q", got, tt.code, tt.text)
			}
			// A panic may go away at the next attempt, whatever was thrown.
			if task.IsPermanent(err) {
				t.Error("the error is permanent")
			}
		})
	}
}
