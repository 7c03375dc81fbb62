package checkpoint_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// unfinished walks the whole table.
func (f *fixture) unfinished(t *testing.T, before time.Time) (found []task.ID, pages int) {
	t.Helper()
	var from checkpoint.SweepKey
	for {
		records, next, err := f.Unfinished(t.Context(), before, from)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			found = append(found, r.TaskID)
		}
		if pages++; next == (checkpoint.SweepKey{}) {
			slices.Sort(found)
			return found, pages
		}
		from = next
	}
}

func TestUnfinishedAreOldTasksWithoutAnEnd(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	queued := task.Message{ID: task.NewID("th-1", *f.now.Load()), Thread: "th-1", Task: "rag_query"}
	if _, _, err := f.Create(t.Context(), queued, *f.now.Load()); err != nil {
		t.Fatal(err)
	}
	running := f.claim(t, "th-2")
	retrying := f.claim(t, "th-3")
	if err := f.End(t.Context(), retrying, checkpoint.End{Status: checkpoint.Retrying, Failure: task.Failure{Code: "BUSY"}, NextRetryAt: f.in(time.Second)}); err != nil {
		t.Fatal(err)
	}
	failed := f.claim(t, "th-4")
	if err := f.End(t.Context(), failed, checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: "NO"}}); err != nil {
		t.Fatal(err)
	}
	f.succeed(t, "th-5", `"done"`)
	want := []task.ID{queued.ID, running.TaskID, retrying.TaskID}
	slices.Sort(want)

	if got, _ := f.unfinished(t, *f.now.Load()); len(got) != 0 {
		t.Errorf("found %v before their time, want none", got)
	}
	f.pass(time.Hour)
	if got, _ := f.unfinished(t, *f.now.Load()); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	f.pass(100 * 24 * time.Hour)
	if got, _ := f.unfinished(t, *f.now.Load()); len(got) != 0 {
		t.Errorf("found %v after they expired, want none", got)
	}
}

func TestUnfinishedAreFoundBeyondTheFirstPage(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	noise := jsontext.Value(random(600 << 10))
	var want []task.ID
	for i := range 6 {
		rec := f.claim(t, "th-"+strings.Repeat("x", i+1))
		done, err := f.Commit(t.Context(), checkpoint.Commit{Record: rec, Step: "one", Data: noise})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, done.Record.TaskID)
	}
	slices.Sort(want)
	f.pass(time.Hour)
	got, pages := f.unfinished(t, *f.now.Load())
	if !slices.Equal(got, want) || pages < 2 {
		t.Errorf("found %v on %d pages, want %v on several", got, pages, want)
	}
}

func TestGiveUpLeavesAloneWhatHasMovedOn(t *testing.T) {
	t.Parallel()
	reason := task.Failure{Code: task.CodeMessageLost, Message: "gone"}
	tests := map[string]struct {
		between func(t *testing.T, f *fixture, rec checkpoint.Record)
		given   bool
	}{
		"nothing happened": {func(*testing.T, *fixture, checkpoint.Record) {}, true},
		"claimed again":    {func(t *testing.T, f *fixture, rec checkpoint.Record) { t.Helper(); f.claimTask(t, rec.TaskID, "m-1") }, false},
		"ended": {func(t *testing.T, f *fixture, rec checkpoint.Record) {
			t.Helper()
			if err := f.End(t.Context(), rec, checkpoint.End{Status: checkpoint.Retrying, Failure: reason}); err != nil {
				t.Fatal(err)
			}
		}, false},
		"succeeded": {func(t *testing.T, f *fixture, rec checkpoint.Record) {
			t.Helper()
			if _, err := f.Commit(t.Context(), last(rec, `"done"`)); err != nil {
				t.Fatal(err)
			}
		}, false},
		"lease still held": {func(t *testing.T, f *fixture, _ checkpoint.Record) { t.Helper(); f.pass(-90 * time.Minute) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			rec := f.claim(t, "th-1")
			f.pass(90 * time.Minute)
			seen := f.record(t, rec.TaskID)
			tt.between(t, f, rec)
			before := f.record(t, rec.TaskID)
			given, err := f.GiveUp(t.Context(), seen, reason)
			if err != nil || given != tt.given {
				t.Fatalf("given up: %v, %v, want %v", given, err, tt.given)
			}
			after := f.record(t, rec.TaskID)
			switch {
			case !given && after.Status != before.Status:
				t.Errorf("the record went from %s to %s, want it left alone", before.Status, after.Status)
			case given && (after.Status != checkpoint.Failed || after.Error == nil || *after.Error != reason || after.Lease.Owner != ""):
				t.Errorf("got %+v, want it failed for %v and owned by nobody", after, reason)
			}
		})
	}
}

// Whoever gave a task up tells of it, also when the answer to the write was lost.
func TestATaskIsGivenUpByWhomeverDidIt(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.claim(t, "th-1")
	f.pass(time.Hour)
	seen, reason := f.record(t, rec.TaskID), task.Failure{Code: task.CodeMessageLost, Message: "gone"}
	f.api.repeat.Store(true)
	if given, err := f.GiveUp(t.Context(), seen, reason); err != nil || !given {
		t.Errorf("the first one: %v, %v, want it given up", given, err)
	}
	f.pass(time.Second)
	if given, err := f.GiveUp(t.Context(), seen, reason); err != nil || given {
		t.Errorf("somebody later, who saw the task as it was: %v, %v, want it not given up again", given, err)
	}
}

// A message that turns up after all is run, and one that was known is not.
func TestATaskGivenUpRunsUnderANewMessage(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.claim(t, "th-1")
	f.pass(time.Hour)
	if given, err := f.GiveUp(t.Context(), f.record(t, rec.TaskID), task.Failure{Code: task.CodeMessageLost}); err != nil || !given {
		t.Fatalf("given up: %v, %v, want true", given, err)
	}
	if _, err := f.Claim(t.Context(), f.request(rec.TaskID, "m-1")); !errors.Is(err, checkpoint.ErrFailed) {
		t.Errorf("claim under the old message: %v, want %v", err, checkpoint.ErrFailed)
	}
	if again := f.claimTask(t, rec.TaskID, "m-2"); again.Status != checkpoint.Running || len(again.Attempts) != 2 {
		t.Errorf("claim under a new message: %+v, want it running in its second attempt", again)
	}
}

func TestTheSearchGoesOnWhereItStands(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if got, err := f.Sweep(t.Context()); err != nil || got != (checkpoint.Sweep{}) {
		t.Fatalf("at first: %+v, %v, want the beginning", got, err)
	}
	want := checkpoint.Sweep{Next: checkpoint.SweepKey{PK: "thread#th-1", SK: "history#1"}, Ended: *f.now.Load()}
	if err := f.Swept(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Sweep(t.Context()); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
