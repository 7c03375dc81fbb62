package checkpoint_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Case: concurrent updates to one record (12 writers append to one thread)
func TestTwelveWritersOnOneThreadLoseNothing(t *testing.T) {
	t.Parallel()
	for name, isLast := range map[string]bool{"last steps": true, "steps on the way": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			const writers = 12
			var all sync.WaitGroup
			for i := range writers {
				c := last(f.claimTask(t, task.NewID("th-1", *f.now.Load()), fmt.Sprint("m-", i)), fmt.Sprint(i))
				c.Last = isLast
				all.Go(func() {
					if _, err := f.Commit(t.Context(), c); err != nil {
						t.Errorf("writer %d: %v", i, err)
					}
				})
			}
			all.Wait()
			got, err := f.Latest(t.Context(), "th-1", 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for i, c := range got {
				if want := uint64(len(got) - i); c.N != want {
					t.Errorf("checkpoint at place %d has number %d, want %d", i, c.N, want)
				}
				seen[string(c.Data)] = true
			}
			if len(got) != writers || len(seen) != writers {
				t.Errorf("%d checkpoints with %d different outputs, want %d of each", len(got), len(seen), writers)
			}
			if res, err := f.Result(t.Context(), "th-1"); isLast && (err != nil || res.N != writers) {
				t.Errorf("newest result has number %d (%v), want %d", res.N, err, writers)
			}
		})
	}
}

// Case: lexicographic sort key
func TestNumbersSortBeyondEveryPowerOfTen(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, n := range []uint64{9, 10, 99, 100, 999_999, 1_000_000} {
		thread := fmt.Sprint("th-", n)
		_, err := f.api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &f.table, Item: map[string]types.AttributeValue{
			"pk":   &types.AttributeValueMemberS{Value: "thread#" + thread},
			"sk":   &types.AttributeValueMemberS{Value: fmt.Sprintf("checkpoint#%020d", n)},
			"data": &types.AttributeValueMemberS{Value: "1"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		done := f.succeed(t, thread, `1`)
		if done.N != n+1 {
			t.Errorf("after checkpoint %d came %d", n, done.N)
		}
		latest, err := f.Latest(t.Context(), thread, 0, 1)
		if err != nil || len(latest) != 1 || latest[0].N != n+1 {
			t.Errorf("latest after %d is %+v (%v), want %d", n, latest, err, n+1)
		}
	}
}

// Case: wrong item is "latest"
func TestLatestIsACheckpointWhateverElseTheThreadHolds(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if got, err := f.Latest(t.Context(), "th-1", 0, 5); err != nil || len(got) != 0 {
		t.Fatalf("an unknown thread has %v (%v), want nothing", got, err)
	}
	first := f.claim(t, "th-1")
	done, err := f.Commit(t.Context(), checkpoint.Commit{Record: first, Step: "retrieve", Data: jsontext.Value(`["a"]`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(t.Context(), checkpoint.Commit{Record: done.Record, Newest: done.N, Step: "generate", Data: jsontext.Value(`"b"`), Last: true}); err != nil {
		t.Fatal(err)
	}
	f.claim(t, "th-1") // a history item that sorts behind every checkpoint
	got, err := f.Latest(t.Context(), "th-1", 0, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || string(got[0].Data) != `"b"` || string(got[1].Data) != `["a"]` || !got[0].Last || got[1].Last {
		t.Errorf("latest are %+v, want the two checkpoints, newest first", got)
	}
	if older, err := f.Latest(t.Context(), "th-1", 1, 5); err != nil || len(older) != 1 || older[0].N != 1 {
		t.Errorf("up to number 1 there are %+v (%v), want the first", older, err)
	}
}

// Case: idempotency lease (a zombie commits after somebody took over)
func TestAZombieCommitsNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	zombie := f.claim(t, "th-1")
	f.pass(2 * time.Minute) // its lease is over
	owner := f.claimTask(t, zombie.TaskID, "m-1")

	_, err := f.Commit(t.Context(), last(zombie, `"zombie"`))
	wantErr(t, err, checkpoint.ErrFenceLost)
	wantErr(t, f.End(t.Context(), zombie, checkpoint.End{Status: checkpoint.Failed}), checkpoint.ErrFenceLost)
	if got, err := f.Latest(t.Context(), "th-1", 0, 5); err != nil || len(got) != 0 {
		t.Errorf("the zombie left %+v (%v), want nothing", got, err)
	}
	if _, err := f.Commit(t.Context(), last(owner, `"owner"`)); err != nil {
		t.Errorf("the owner's commit: %v", err)
	}
}

func TestAHandedBackAttemptCommitsNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.claim(t, "th-1")
	end := checkpoint.End{Status: checkpoint.Retrying, Failure: task.Failure{Code: task.CodeDeadline}, NextRetryAt: f.in(time.Second)}
	if err := f.End(t.Context(), rec, end); err != nil {
		t.Fatal(err)
	}
	_, err := f.Commit(t.Context(), last(rec, `1`))
	wantErr(t, err, checkpoint.ErrFenceLost)
}

func TestWritesTakeEffectOnceWhenTheirAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.api.repeat.Store(true)
	m := task.Message{Task: "rag_query", ID: task.NewID("th-1", *f.now.Load()), Thread: "th-1"}
	if existing, created, err := f.Create(t.Context(), m, *f.now.Load()); err != nil || (!created && existing.Status != checkpoint.Queued) {
		t.Fatalf("create: %+v, %v, %v; want it queued", existing, created, err)
	}
	if _, reserved, err := f.ReserveKey(t.Context(), checkpoint.Key{Hash: "h", TaskID: m.ID}); err != nil || !reserved {
		t.Errorf("reserve: %v, %v; want it reserved", reserved, err)
	}
	rec := f.claimTask(t, m.ID, "m-1")
	if len(rec.Attempts) != 1 {
		t.Fatalf("%d attempts after one claim, want 1", len(rec.Attempts))
	}
	if err := f.End(t.Context(), rec, checkpoint.End{Status: checkpoint.Retrying, NextRetryAt: f.in(time.Second)}); err != nil {
		t.Fatal(err)
	}
	rec = f.claimTask(t, m.ID, "m-1")
	one, err := f.Commit(t.Context(), checkpoint.Commit{Record: rec, Step: "one", Data: jsontext.Value(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	two, err := f.Commit(t.Context(), checkpoint.Commit{Record: one.Record, Newest: one.N, Step: "two", Data: jsontext.Value(`2`), Last: true})
	if err != nil {
		t.Fatal(err)
	}
	if one.N != 1 || two.N != 2 {
		t.Errorf("the checkpoints have numbers %d and %d, want 1 and 2", one.N, two.N)
	}
	wantErr(t, f.End(t.Context(), rec, checkpoint.End{Status: checkpoint.Failed}), checkpoint.ErrSucceeded)
	got := f.record(t, m.ID)
	want := []checkpoint.Step{{Name: "one", N: 1}, {Name: "two", N: 2}}
	if diff := cmp.Diff(want, got.Steps); diff != "" || len(got.Attempts) != 2 || got.Status != checkpoint.Succeeded {
		t.Errorf("record is %+v, want two attempts and steps (-want +got):\n%s", got, diff)
	}
}

// Case: conflict taken for something else
// Case: transaction conflict not retried
func TestWhatACancelledTransactionMeans(t *testing.T) {
	t.Parallel()
	tests := []struct {
		codes []string
		fails bool
	}{
		{codes: []string{"None", "TransactionConflict"}},
		{codes: []string{"TransactionConflict", "None", "None"}},
		{codes: []string{"TransactionConflict", "ThrottlingError"}},
		{codes: []string{"None", "ProvisionedThroughputExceeded"}},
		{codes: []string{"None", "ConditionalCheckFailed", "TransactionConflict"}},
		{codes: []string{"None", "ValidationError"}, fails: true},
		{codes: []string{"ItemCollectionSizeLimitExceeded", "None"}, fails: true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.codes), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			rec := f.claim(t, "th-1")
			f.api.cancel.Store(tt.codes)
			done, err := f.Commit(t.Context(), last(rec, `1`))
			if failed := err != nil; failed != tt.fails {
				t.Fatalf("error is %v, want one: %v", err, tt.fails)
			}
			if !tt.fails && (done.N != 1 || done.Conflicts != 1) {
				t.Errorf("number %d after %d conflicts, want 1 after 1", done.N, done.Conflicts)
			}
		})
	}
}

func TestATakenNumberIsRenumberedWithoutAGap(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	slow := f.claim(t, "th-1")
	f.api.before.Store(func() { f.succeed(t, "th-1", `"fast"`) })
	done, err := f.Commit(t.Context(), last(slow, `"slow"`))
	if err != nil {
		t.Fatal(err)
	}
	if done.N != 2 || done.Conflicts != 1 {
		t.Errorf("number %d after %d conflicts, want 2 after 1", done.N, done.Conflicts)
	}
	if res, err := f.Result(t.Context(), "th-1"); err != nil || string(res.Data) != `"slow"` {
		t.Errorf("result is %s (%v), want the newest", res.Data, err)
	}
}

func TestATicketChangesWithItsCheckpointOrNotAtAll(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	set := func(status string, version int64) error {
		c := last(f.claim(t, "ticket-TK-1"), `1`)
		c.Ticket = &task.Ticket{ID: "TK-1", Status: status, Version: version, UpdatedAt: *f.now.Load()}
		_, err := f.Commit(t.Context(), c)
		return err
	}
	if err := set("open", 1); err != nil {
		t.Fatal(err)
	}
	wantErr(t, set("closed", 1), checkpoint.ErrTicketChanged)
	wantErr(t, set("closed", 3), checkpoint.ErrTicketChanged)
	if err := set("resolved", 2); err != nil {
		t.Fatal(err)
	}
	got, err := f.Ticket(t.Context(), "TK-1")
	if err != nil || got.Status != "resolved" || got.Version != 2 {
		t.Errorf("ticket is %+v (%v), want it resolved at version 2", got, err)
	}
	if latest, err := f.Latest(t.Context(), "ticket-TK-1", 0, 9); err != nil || len(latest) != 2 {
		t.Errorf("%d checkpoints (%v), want the two that went through", len(latest), err)
	}
	_, err = f.Ticket(t.Context(), "TK-2")
	wantErr(t, err, checkpoint.ErrNotFound)
}

func TestAnExpiredResultGivesWayToASmallerNumber(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.api.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &f.table, Item: map[string]types.AttributeValue{
		"pk":         &types.AttributeValueMemberS{Value: "thread#th-1"},
		"sk":         &types.AttributeValueMemberS{Value: "result"},
		"n":          &types.AttributeValueMemberN{Value: "7"},
		"expires_at": &types.AttributeValueMemberN{Value: fmt.Sprint(f.in(-time.Hour).Unix())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Result(t.Context(), "th-1")
	wantErr(t, err, checkpoint.ErrNotFound)
	f.succeed(t, "th-1", `"new"`)
	if res, err := f.Result(t.Context(), "th-1"); err != nil || res.N != 1 {
		t.Errorf("result is %+v (%v), want number 1", res, err)
	}
}
