package tasktest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

const id = task.ID("th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB")

func give[T any](v T) func(context.Context, *task.Effects) (T, error) {
	return func(context.Context, *task.Effects) (T, error) { return v, nil }
}

func TestResumeReadsCommittedStepsBack(t *testing.T) {
	t.Parallel()
	run := tasktest.NewRun(id)
	broken := errors.New("broken")
	handler := func(run task.Run, second error) (int, error) {
		a, err := task.Step(t.Context(), run, "first", give(20))
		if err != nil {
			return 0, err
		}
		return task.LastStep(t.Context(), run, "second", func(_ context.Context, effects *task.Effects) (int, error) {
			effects.SetTicket(task.Ticket{ID: "TK-1", Version: 1})
			return a + 1, second
		})
	}
	if _, err := handler(run, broken); !errors.Is(err, broken) {
		t.Fatalf("first attempt: got %v, want %v", err, broken)
	}
	if got := run.Tickets(); len(got) != 0 {
		t.Errorf("tickets changed by a failed step: got %v, want none", got)
	}

	again := run.Resume()
	again.FailCommit(broken)
	if _, err := handler(again, nil); !errors.Is(err, broken) {
		t.Fatalf("attempt whose commit fails: got %v, want %v", err, broken)
	}
	third := again.Resume()
	got, err := handler(third, nil)
	if err != nil || got != 21 {
		t.Fatalf("third attempt: got %d, %v, want 21", got, err)
	}
	if got, want := third.Ran(), []string{"second"}; !slices.Equal(got, want) {
		t.Errorf("steps run in the third attempt: got %q, want %q", got, want)
	}
	if got, want := third.Attempt(), 3; got != want {
		t.Errorf("attempt: got %d, want %d", got, want)
	}
	key := string(id) + "/second"
	if got, want := third.Keys(), []string{string(id) + "/first", key, key, key}; !slices.Equal(got, want) {
		t.Errorf("effect keys: got %q, want %q", got, want)
	}
	if got := third.Tickets(); len(got) != 1 || got[0].ID != "TK-1" {
		t.Errorf("tickets: got %v, want one change of TK-1", got)
	}
	if got, ok := third.Committed("second"); !ok || string(got) != "21" {
		t.Errorf("committed output: got %s, %t, want 21", got, ok)
	}
}

func TestStepMisuseIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		committed []string
		last      string // of the committed ones
		again     []string
		wantCode  string
		wantText  string
	}{
		"same name twice":    {again: []string{"a", "a"}, wantCode: task.CodeFailed, wantText: "used before"},
		"after the last":     {again: []string{"last", "b"}, last: "last", wantCode: task.CodeFailed, wantText: "follows the last"},
		"after a read last":  {committed: []string{"a", "last"}, last: "last", again: []string{"a", "last", "b"}, wantCode: task.CodeFailed, wantText: "follows the last"},
		"another order":      {committed: []string{"a", "b"}, again: []string{"b", "a"}, wantCode: task.CodeStepsChanged, wantText: `step 1 is "b"`},
		"renamed":            {committed: []string{"a"}, again: []string{"x"}, wantCode: task.CodeStepsChanged, wantText: `committed as "a"`},
		"no name":            {again: []string{""}, wantCode: task.CodeFailed, wantText: "1 to 100 bytes"},
		"name of 101 bytes":  {again: []string{strings.Repeat("x", 101)}, wantCode: task.CodeFailed, wantText: "1 to 100 bytes"},
		"one more step is":   {committed: []string{"a"}, again: []string{"a", "b"}},
		"one step fewer too": {committed: []string{"a", "b"}, again: []string{"a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := func(run task.Run, steps []string) error {
				for _, name := range steps {
					step := task.Step[int]
					if name == tt.last {
						step = task.LastStep[int]
					}
					if _, err := step(t.Context(), run, name, give(1)); err != nil {
						return err
					}
				}
				return nil
			}
			run := tasktest.NewRun(id)
			if err := handler(run, tt.committed); err != nil {
				t.Fatalf("first attempt: %v", err)
			}
			err := handler(run.Resume(), tt.again)
			if tt.wantCode == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("got no error, want one with %q", tt.wantText)
			}
			if got := task.FailureOf(err); got.Code != tt.wantCode || !strings.Contains(got.Message, tt.wantText) || !task.IsPermanent(err) {
				t.Errorf("got %+v (permanent: %t), want a permanent %s with %q", got, task.IsPermanent(err), tt.wantCode, tt.wantText)
			}
		})
	}
}

func TestStepInsideAStepIsRefused(t *testing.T) {
	t.Parallel()
	run := tasktest.NewRun(id)
	_, err := task.Step(t.Context(), run, "outer", func(ctx context.Context, _ *task.Effects) (int, error) {
		return task.Step(ctx, run, "inner", give(1))
	})
	if err == nil || !strings.Contains(err.Error(), "while another one runs") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	t.Parallel()
	run := tasktest.NewRun(id)
	_, err := task.Step(t.Context(), run, "a", func(context.Context, *task.Effects) (int, error) { panic("boom") })
	if err == nil || task.FailureOf(err).Code != task.CodePanic {
		t.Errorf("got %v, want code %s", err, task.CodePanic)
	}
}

func TestStepThatBecameTheLastIsRefused(t *testing.T) {
	t.Parallel()
	run := tasktest.NewRun(id)
	if _, err := task.Step(t.Context(), run, "a", give(1)); err != nil {
		t.Fatal(err)
	}
	_, err := task.LastStep(t.Context(), run.Resume(), "a", give(1))
	if err == nil || task.FailureOf(err).Code != task.CodeStepsChanged {
		t.Errorf("got %v, want code %s", err, task.CodeStepsChanged)
	}
}
