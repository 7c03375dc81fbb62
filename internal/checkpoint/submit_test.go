package checkpoint_test

import (
	"sync"
	"testing"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

func TestAnIdempotencyKeyStandsForOneTaskForADay(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	reserved := map[task.ID]int{}
	for range 10 {
		all.Go(func() {
			k := checkpoint.Key{Hash: "h", Body: "b", TaskID: task.NewID("th-1", time.Now())}
			got, ok, err := f.ReserveKey(t.Context(), k)
			if err != nil || got.Body != "b" {
				t.Errorf("reserve gave %+v (%v)", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if reserved[got.TaskID] += 0; ok {
				reserved[got.TaskID]++
			}
		})
	}
	all.Wait()
	if len(reserved) != 1 {
		t.Fatalf("one key stands for %d tasks: %v", len(reserved), reserved)
	}
	for id, n := range reserved {
		if n != 1 {
			t.Errorf("%d callers reserved the key, want 1", n)
		}
		if err := f.KeySent(t.Context(), "h", "m-1"); err != nil {
			t.Fatal(err)
		}
		got, ok, err := f.ReserveKey(t.Context(), checkpoint.Key{Hash: "h", TaskID: "th-1.other"})
		if err != nil || ok || got.TaskID != id || got.MessageID != "m-1" {
			t.Errorf("the key gives %+v, %v (%v), want task %s and its message", got, ok, err, id)
		}
	}
	f.pass(25 * time.Hour)
	if _, ok, err := f.ReserveKey(t.Context(), checkpoint.Key{Hash: "h", TaskID: "th-1.other"}); err != nil || !ok {
		t.Errorf("a day later: %v (%v), want the key free again", ok, err)
	}
}

func TestAFailedSubmissionCanBeTakenUpAgain(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	m := task.Message{Task: "rag_query", ID: task.NewID("th-1", *f.now.Load()), Thread: "th-1"}
	if _, created, err := f.Create(t.Context(), m, *f.now.Load()); err != nil || !created {
		t.Fatalf("create: %v, %v", created, err)
	}
	if err := f.Requeue(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.SubmitFailed(t.Context(), m.ID, "SQS is away"); err != nil {
		t.Fatal(err)
	}
	got := f.record(t, m.ID)
	if got.Status != checkpoint.Failed || got.Error == nil || *got.Error != (task.Failure{Code: task.CodeSubmitFailed, Message: "SQS is away"}) {
		t.Errorf("record is %+v, want it failed with the reason", got)
	}
	if existing, created, err := f.Create(t.Context(), m, *f.now.Load()); err != nil || created || existing.Status != checkpoint.Failed {
		t.Errorf("create again: %+v, %v (%v), want the failed one", existing, created, err)
	}
	if err := f.Requeue(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if got := f.record(t, m.ID); got.Status != checkpoint.Queued || got.Error != nil {
		t.Errorf("record is %+v, want it queued", got)
	}
	f.claimTask(t, m.ID, "m-1")
	if err := f.SubmitFailed(t.Context(), m.ID, "too late"); err != nil {
		t.Fatal(err)
	}
	if got := f.record(t, m.ID); got.Status != checkpoint.Running {
		t.Errorf("status is %s, want running: the message did arrive", got.Status)
	}
}
