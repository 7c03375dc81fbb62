package checkpoint_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Case: idempotency lease (a worker dies after the claim)
func TestWhoMayClaimATask(t *testing.T) {
	t.Parallel()
	failed := checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: task.CodeFailed, Message: "no"}}
	retrying := checkpoint.End{Status: checkpoint.Retrying, Failure: failed.Failure, NextRetryAt: time.Now()}
	end := func(e checkpoint.End) func(*testing.T, *fixture, task.ID) {
		return func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if err := f.End(t.Context(), f.claimTask(t, id, "m-1"), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := &checkpoint.LeaseHeldError{}
	tests := map[string]struct {
		before    func(*testing.T, *fixture, task.ID)
		messageID string
		want      error
		attempts  int
		tries     int
	}{
		"unknown task": {before: func(*testing.T, *fixture, task.ID) {}, messageID: "m-1", attempts: 1, tries: 1},
		"queued": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if _, _, err := f.Create(t.Context(), task.Message{Task: "rag_query", ID: id, Thread: id.Thread()}, *f.now.Load()); err != nil {
				t.Fatal(err)
			}
		}, messageID: "m-1", attempts: 1, tries: 1},
		"retrying":             {before: end(retrying), messageID: "m-1", attempts: 2, tries: 2},
		"failed, same message": {before: end(failed), messageID: "m-1", want: checkpoint.ErrFailed},
		"failed, redriven":     {before: end(failed), messageID: "m-2", attempts: 2, tries: 1},
		"failed again, message of before": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			end(failed)(t, f, id)
			if err := f.End(t.Context(), f.claimTask(t, id, "m-2"), failed); err != nil {
				t.Fatal(err)
			}
		}, messageID: "m-1", want: checkpoint.ErrFailed},
		"running elsewhere": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			f.claimTask(t, id, "m-1")
		}, messageID: "m-1", want: held},
		"running elsewhere, lease over": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			f.claimTask(t, id, "m-1")
			f.pass(2 * time.Minute)
		}, messageID: "m-1", attempts: 2, tries: 1},
		"cut off, then retrying": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			f.claimTask(t, id, "m-1")
			f.pass(2 * time.Minute)
			end(retrying)(t, f, id)
		}, messageID: "m-1", attempts: 3, tries: 2},
		"succeeded": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if _, err := f.Commit(t.Context(), last(f.claimTask(t, id, "m-1"), `1`)); err != nil {
				t.Fatal(err)
			}
		}, messageID: "m-1", want: checkpoint.ErrSucceeded},
		"succeeded, redriven": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if _, err := f.Commit(t.Context(), last(f.claimTask(t, id, "m-1"), `1`)); err != nil {
				t.Fatal(err)
			}
		}, messageID: "m-2", want: checkpoint.ErrSucceeded},
		"never sent, as far as submit knew": {before: func(t *testing.T, f *fixture, id task.ID) {
			t.Helper()
			if _, _, err := f.Create(t.Context(), task.Message{ID: id, Thread: id.Thread()}, *f.now.Load()); err != nil {
				t.Fatal(err)
			}
			if err := f.SubmitFailed(t.Context(), id, "timeout"); err != nil {
				t.Fatal(err)
			}
		}, messageID: "m-1", attempts: 1, tries: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			id := task.NewID("th-1", *f.now.Load())
			tt.before(t, f, id)
			rec, err := f.Claim(t.Context(), f.request(id, tt.messageID))
			if errors.As(tt.want, &held) {
				var got *checkpoint.LeaseHeldError
				if !errors.As(err, &got) || !got.Until.Equal(f.in(time.Minute)) {
					t.Fatalf("error is %v, want a lease for another minute", err)
				}
				return
			}
			wantErr(t, err, tt.want)
			if tt.want != nil {
				return
			}
			if len(rec.Attempts) != tt.attempts || rec.Tries() != tt.tries || rec.Lease.Fence != int64(tt.attempts) {
				t.Errorf("%d attempts, %d tries, fence %d; want %d, %d, %d", len(rec.Attempts), rec.Tries(), rec.Lease.Fence, tt.attempts, tt.tries, tt.attempts)
			}
			if rec.Status != checkpoint.Running || rec.MessageID != tt.messageID || rec.TaskID != id || rec.Task != "rag_query" {
				t.Errorf("claimed record is %+v", rec)
			}
		})
	}
}

func TestOneOfManyClaimsWins(t *testing.T) {
	t.Parallel()
	for name, messages := range map[string][]string{"queued": {"m-1"}, "redriven": {"m-2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			id := task.NewID("th-1", *f.now.Load())
			if name == "redriven" {
				if err := f.End(t.Context(), f.claimTask(t, id, "m-1"), checkpoint.End{Status: checkpoint.Failed}); err != nil {
					t.Fatal(err)
				}
			}
			before := 0
			if rec, err := f.Record(t.Context(), id); err == nil {
				before = len(rec.Attempts)
			}
			var all sync.WaitGroup
			var mu sync.Mutex
			won := 0
			for range 10 {
				all.Go(func() {
					if _, err := f.Claim(t.Context(), f.request(id, messages[0])); err == nil {
						mu.Lock()
						won++
						mu.Unlock()
					}
				})
			}
			all.Wait()
			if rec := f.record(t, id); won != 1 || len(rec.Attempts) != before+1 {
				t.Errorf("%d of 10 claims won and left %d attempts, want one and %d", won, len(rec.Attempts), before+1)
			}
		})
	}
}
