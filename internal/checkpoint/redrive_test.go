package checkpoint_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// failed is the record of a task whose message m-1 is dead.
func (f *fixture) failed(t *testing.T) checkpoint.Record {
	t.Helper()
	rec := f.claim(t, "th-1")
	f.fail(t, rec)
	return f.record(t, rec.TaskID)
}

func (f *fixture) fail(t *testing.T, rec checkpoint.Record) {
	t.Helper()
	end := checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: "MODEL_DOWN", Message: "no answer"}}
	if err := f.End(t.Context(), rec, end); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) begin(t *testing.T, rec checkpoint.Record, messageID string) checkpoint.Record {
	t.Helper()
	rec, err := f.BeginRedrive(t.Context(), rec, messageID, "MODEL_DOWN")
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (f *fixture) redriven(t *testing.T, id task.ID, messageID string) (begun, done bool) {
	t.Helper()
	rec := f.record(t, id)
	d, begun := rec.RedriveOf(messageID)
	return begun, begun && rec.Redriven(d)
}

// What a record says of a redrive at each point at which the one who redrives may die.
func TestARedriveIsRemembered(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.failed(t)
	id := rec.TaskID
	if begun, _ := f.redriven(t, id, "m-1"); begun {
		t.Error("a redrive is known before it has begun")
	}

	rec = f.begin(t, rec, "m-1")
	if begun, done := f.redriven(t, id, "m-1"); !begun || done {
		t.Errorf("after the begin: got begun %v, done %v; want begun only", begun, done)
	}
	if got := f.record(t, id).Status; got != checkpoint.Failed {
		t.Errorf("before the copy is confirmed the task is %s, want failed", got)
	}

	if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", true); err != nil {
		t.Fatal(err)
	}
	after := f.record(t, id)
	if begun, done := f.redriven(t, id, "m-1"); !begun || !done || after.Status != checkpoint.Queued || after.Error != nil || after.MessageID != "m-2" {
		t.Errorf("after the end: got begun %v, done %v, %+v; want done, and queued under the copy", begun, done, after)
	}
	// The message still lies in the dead-letter queue, and somebody looks.
	looked, err := f.DeadLettered(t.Context(), checkpoint.DeadLetter{ID: id, MessageID: "m-1", Reason: task.Failure{Code: task.CodeDeadLettered}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, looked); diff != "" {
		t.Errorf("the look at the old message changed the record (-before +after):\n%s", diff)
	}
	if again := f.claimTask(t, id, "m-2"); again.Tries() != 1 {
		t.Errorf("the copy begins with try %d, want 1", again.Tries())
	}
}

// Nothing but the redrive tells that the task has come under the old message.
func TestARedriveOfATaskThatNoWorkerSaw(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id := task.NewID("th-1", *f.now.Load())
	letter := checkpoint.DeadLetter{ID: id, MessageID: "m-1", Reason: task.Failure{Code: task.CodeDeadLettered}}
	rec, err := f.DeadLettered(t.Context(), letter)
	if err != nil {
		t.Fatal(err)
	}
	rec = f.begin(t, rec, "m-1")
	if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", true); err != nil {
		t.Fatal(err)
	}
	if rec, err = f.DeadLettered(t.Context(), letter); err != nil || rec.Status != checkpoint.Queued || rec.MessageID != "m-2" {
		t.Errorf("a look at the old message: got %s under %s, %v; want it queued under the copy", rec.Status, rec.MessageID, err)
	}
}

// The end of a redrive is not known: only what a worker does under another message tells that there was a copy.
func TestAClaimOfTheCopyIsTheProof(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.begin(t, f.failed(t), "m-1")
	copied := f.claimTask(t, rec.TaskID, "m-2")
	if _, done := f.redriven(t, rec.TaskID, "m-1"); !done {
		t.Error("a worker has the copy, and the redrive does not count as done")
	}
	// It comes late, and must not take the task from the worker.
	if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", true); err != nil {
		t.Fatal(err)
	}
	if got := f.record(t, rec.TaskID); got.Status != checkpoint.Running || got.Lease.Fence != copied.Lease.Fence || got.Redrives[0].To != "m-2" {
		t.Errorf("after the late end: got %+v, want it running and the copy noted", got)
	}
	// It fails again and is redriven once more: two redrives, each with its own message.
	f.fail(t, copied)
	rec = f.begin(t, f.record(t, rec.TaskID), "m-2")
	if _, done := f.redriven(t, rec.TaskID, "m-2"); done || len(rec.Redrives) != 2 {
		t.Errorf("the second redrive: got done %v with %+v, want it open beside the first", done, rec.Redrives)
	}
}

// The copy may reach a worker before the redrive is noted as ended.
func TestTheEndOfARedriveCostsTheCopyNoDelivery(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.begin(t, f.failed(t), "m-1")
	api := &interrupted{API: f.api, at: 2, by: func() { // after the claim has seen the task failed
		if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", true); err != nil {
			t.Error(err)
		}
	}}
	worker := checkpoint.New(api, f.table, checkpoint.Options{Now: func() time.Time { return *f.now.Load() }})
	got, err := worker.Claim(t.Context(), f.request(rec.TaskID, "m-2"))
	if err != nil || got.Tries() != 1 {
		t.Errorf("claim: got %+v, %v; want the first try of the copy", got, err)
	}
}

// interrupted has something else happen before one of the updates.
type interrupted struct {
	checkpoint.API
	at int
	by func()
}

func (i *interrupted) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if i.at--; i.at == 0 {
		i.by()
	}
	return i.API.UpdateItem(ctx, in, o...)
}

func TestTheAttemptBeforeARedriveIsNoProof(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.claimTask(t, task.NewID("th-1", *f.now.Load()), "m-0")
	f.fail(t, first)
	second := f.claimTask(t, first.TaskID, "m-1")
	f.fail(t, second)
	rec := f.begin(t, f.record(t, first.TaskID), "m-1")
	if _, done := f.redriven(t, rec.TaskID, "m-1"); done {
		t.Error("an attempt under an older message counts as the copy's")
	}
}

func TestTwoCannotRedriveTheSameMessage(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.failed(t)
	f.begin(t, rec, "m-1")
	if _, err := f.BeginRedrive(t.Context(), rec, "m-1", "MODEL_DOWN"); !errors.Is(err, checkpoint.ErrChanged) {
		t.Errorf("the second begin: got %v, want %v", err, checkpoint.ErrChanged)
	}
	// Both know of the first try and try again.
	known := f.record(t, rec.TaskID)
	f.begin(t, known, "m-1")
	if _, err := f.BeginRedrive(t.Context(), known, "m-1", "MODEL_DOWN"); !errors.Is(err, checkpoint.ErrChanged) {
		t.Errorf("the second of two further tries: got %v, want %v", err, checkpoint.ErrChanged)
	}
	// A worker has claimed the task since it was read.
	known = f.record(t, rec.TaskID)
	f.claimTask(t, rec.TaskID, "m-2")
	if _, err := f.BeginRedrive(t.Context(), known, "m-1", "MODEL_DOWN"); !errors.Is(err, checkpoint.ErrChanged) {
		t.Errorf("a begin after a claim: got %v, want %v", err, checkpoint.ErrChanged)
	}
}

func TestARedriveWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.failed(t)
	f.api.repeat.Store(true)
	rec = f.begin(t, rec, "m-1")
	rec = f.begin(t, rec, "m-1") // a further try
	if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", true); err != nil {
		t.Fatal(err)
	}
	if got := f.record(t, rec.TaskID); len(got.Redrives) != 1 || got.Redrives[0].To != "m-2" || got.Status != checkpoint.Queued {
		t.Errorf("got %+v, want it queued with one redrive", got)
	}
}

func TestARedriveThatSentNothingIsForgotten(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	before := f.failed(t)
	rec := f.begin(t, before, "m-1")
	if err := f.WithdrawRedrive(t.Context(), rec, "m-1"); err != nil {
		t.Fatal(err)
	}
	got := f.record(t, rec.TaskID)
	got.Redrives = nil
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
	rec = f.begin(t, f.record(t, rec.TaskID), "m-1")
	if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", true); err != nil {
		t.Fatal(err)
	}
	if err := f.WithdrawRedrive(t.Context(), rec, "m-1"); err != nil {
		t.Fatal(err)
	}
	if _, done := f.redriven(t, rec.TaskID, "m-1"); !done {
		t.Error("a confirmed redrive was withdrawn")
	}
}

// A copy of a message that does not say which task it is becomes another task: the first stays failed.
func TestACopyThatIsAnotherTask(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.begin(t, f.failed(t), "m-1")
	if err := f.EndRedrive(t.Context(), rec, "m-1", "m-2", false); err != nil {
		t.Fatal(err)
	}
	if got := f.record(t, rec.TaskID); got.Status != checkpoint.Failed || got.Error == nil || got.Redrives[0].To != "m-2" {
		t.Errorf("got %+v, want it failed as before and the copy noted", got)
	}
}

func TestALookAtADeadLetterWritesNothing(t *testing.T) {
	t.Parallel()
	reason := task.Failure{Code: task.CodeDeadLettered, Message: "never reached a worker"}
	for name, before := range map[string]func(*testing.T, *fixture, task.ID){
		"no record": func(*testing.T, *fixture, task.ID) {},
		"the worker died": func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			f.claimTask(t, id, "m-1")
			f.pass(2 * time.Minute)
		},
		"failed": func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			f.fail(t, f.claimTask(t, id, "m-1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			id := task.NewID("th-1", *f.now.Load())
			before(t, f, id)
			letter := checkpoint.DeadLetter{ID: id, Task: "rag_query", MessageID: "m-1", SentAt: *f.now.Load(), Reason: reason}
			was, wasErr := f.Record(t.Context(), id)
			got, err := f.AsDeadLettered(t.Context(), letter)
			if err != nil {
				t.Fatal(err)
			}
			is, isErr := f.Record(t.Context(), id)
			if diff := cmp.Diff(was, is); diff != "" || errors.Is(wasErr, checkpoint.ErrNotFound) != errors.Is(isErr, checkpoint.ErrNotFound) {
				t.Errorf("the record was changed (-before +after), %v, %v:\n%s", wasErr, isErr, diff)
			}
			want, err := f.DeadLettered(t.Context(), letter)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != want.Status || !cmp.Equal(got.Error, want.Error) || got.MessageID != want.MessageID || got.TaskID != want.TaskID {
				t.Errorf("looked %s %v %s, marked %s %v %s: want the same", got.Status, got.Error, got.MessageID, want.Status, want.Error, want.MessageID)
			}
		})
	}
}
