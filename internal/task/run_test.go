package task_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute stands for a worker: it notes the step that it is given and answers what it is told to.
type execute struct {
	task.Run
	got task.StepFunc
	fn  func(ctx context.Context, step task.StepFunc) (jsontext.Value, error)
}

func (e *execute) Execute(ctx context.Context, step task.StepFunc) (jsontext.Value, error) {
	e.got = step
	return e.fn(ctx, step)
}

func runStep(ctx context.Context, step task.StepFunc) (jsontext.Value, error) {
	return step.Do(ctx, task.NewEffects("key"))
}

func always[T any](v T) func(context.Context, *task.Effects) (T, error) {
	return func(context.Context, *task.Effects) (T, error) { return v, nil }
}

func TestStepsAreHandedToTheRun(t *testing.T) {
	t.Parallel()
	e := &execute{fn: runStep}
	if got, err := task.Step(t.Context(), e, "retrieve", always(5)); got != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", got, err)
	}
	if e.got.Name != "retrieve" || e.got.Last {
		t.Errorf("got step %q, last: %t, want retrieve, not the last", e.got.Name, e.got.Last)
	}
	if got, err := task.LastStep(t.Context(), e, "generate", always("x")); got != "x" || err != nil {
		t.Errorf("got %q, %v, want x", got, err)
	}
	if e.got.Name != "generate" || !e.got.Last {
		t.Errorf("got step %q, last: %t, want generate, the last", e.got.Name, e.got.Last)
	}
}

func TestStepGoesOnWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	committed := &execute{fn: func(context.Context, task.StepFunc) (jsontext.Value, error) { return jsontext.Value(`7`), nil }}
	got, err := task.Step(t.Context(), committed, "a", func(context.Context, *task.Effects) (int, error) {
		t.Error("a committed step was run again")
		return 0, nil
	})
	if got != 7 || err != nil {
		t.Errorf("got %d, %v, want the committed 7", got, err)
	}

	// The first attempt sees what a resumed one will see: a field without a name in JSON is lost to both.
	type output struct {
		Kept int
		Lost int `json:"-"`
	}
	first, err := task.Step(t.Context(), &execute{fn: runStep}, "a", always(output{1, 2}))
	if want := (output{Kept: 1}); first != want || err != nil {
		t.Errorf("first attempt: got %+v, %v, want %+v", first, err, want)
	}

	changed := &execute{fn: func(context.Context, task.StepFunc) (jsontext.Value, error) { return jsontext.Value(`"x"`), nil }}
	_, err = task.Step(t.Context(), changed, "a", always(1))
	if err == nil || task.FailureOf(err).Code != task.CodeStepsChanged || !task.IsPermanent(err) {
		t.Errorf("output of another type: got %v, want a permanent %s", err, task.CodeStepsChanged)
	}
}

func TestStepsErrorIsItsOwn(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy")
	_, err := task.Step(t.Context(), &execute{fn: runStep}, "a", func(context.Context, *task.Effects) (int, error) { return 1, busy })
	if err != busy { //nolint:errorlint // nothing is put around it
		t.Errorf("got %v, want %v", err, busy)
	}
	got, err := task.Step(t.Context(), &execute{fn: runStep}, "a", always(math.NaN()))
	if err == nil || !task.IsPermanent(err) {
		t.Errorf("output that is no JSON: got %v, %v, want a permanent error", got, err)
	}
}

// What a step or a handler gives is committed as it was written.
func TestOutputSurvivesByteForByte(t *testing.T) {
	t.Parallel()
	type output struct {
		Raw  jsontext.Value
		Text string
		None jsontext.Value
		List []string
	}
	const raw = `{"n":[9007199254740993,1e400,-0.0,1.50],"s":"\u0041\/<&>\ud83d\ude00","e":[[],{},null]}`
	out := output{Raw: jsontext.Value(raw), Text: "<b>&\u2028\uFFFE😀</b>"}
	want := `{"Raw":` + raw + `,"Text":"` + out.Text + `","None":null,"List":[]}`

	run := tasktest.NewRun("th-1." + ulidA)
	got, err := task.Step(t.Context(), run, "a", always(out))
	if err != nil {
		t.Fatal(err)
	}
	if committed, _ := run.Committed("a"); string(committed) != want {
		t.Errorf("committed: got %s\nwant %s", committed, want)
	}
	again, err := task.Step(t.Context(), run.Resume(), "a", always(output{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("read back (-first +resumed):\n%s", diff)
	}
	if string(again.Raw) != raw {
		t.Errorf("read back: got %s, want %s", again.Raw, raw)
	}

	typ := task.Definition[anything, output]{
		Name: "give",
		Run:  func(context.Context, task.Run, anything) (output, error) { return out, nil },
	}.Type()
	if result, err := typ.Run(t.Context(), run, task.Message{}); err != nil || string(result) != want {
		t.Errorf("result: got %s, %v\nwant %s", result, err, want)
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	id := task.ID("th-1." + ulidA)
	if got, want := task.EffectKey(id, "generate"), "th-1."+ulidA+"/generate"; got != want {
		t.Errorf("key: got %q, want %q", got, want)
	}
	e := task.NewEffects("key")
	if e.Key() != "key" || e.Ticket() != nil {
		t.Errorf("got key %q, ticket %v, want key and none", e.Key(), e.Ticket())
	}
	ticket := task.Ticket{ID: "TK-1", Status: "closed", Version: 2, UpdatedAt: noon}
	e.SetTicket(ticket)
	ticket.Version = 9
	if got := e.Ticket(); got == nil || got.Version != 2 {
		t.Errorf("got %+v, want the ticket as it was set", got)
	}
}

// The worker checks anew what it is given: others put messages on the queue as well.
func TestTypeRunChecksItsInput(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	typ, _ := r.Lookup("rag_query")
	run := tasktest.NewRun("th-1." + ulidA)

	for fields, want := range map[string]string{
		`{"topics":-1}`:   "question must not be empty; topics must not be negative",
		`{"question":[]}`: "question must be a string",
	} {
		_, err := typ.Run(t.Context(), run, task.Message{Task: "rag_query", Thread: "th-1", Fields: members(t, fields)})
		if err == nil || err.Error() != want || task.FailureOf(err).Code != task.CodeInvalidField || !task.IsPermanent(err) {
			t.Errorf("%s: got %v, want a permanent %s with %q", fields, err, task.CodeInvalidField, want)
		}
	}

	out, err := typ.Run(t.Context(), run, task.Message{Task: "rag_query", Thread: "th-1", Fields: members(t, `{"question":"x","extra":1}`)})
	if err != nil || !strings.HasPrefix(string(out), `{"thread_id":"th-1","question":"x",`) {
		t.Errorf("got %s, %v, want the thread and the question that the handler was given", out, err)
	}
}
