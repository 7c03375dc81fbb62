package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
)

// eraseAPI is a DynamoDB client whose deletes misbehave when they are told to.
type eraseAPI struct {
	*dynamodb.Client
	before func(n int64) error                             // called before the n-th delete, counted from 1; its error is the call's
	leave  func(n int64, all []types.WriteRequest) (k int) // how many of the n-th call's items are left unprocessed
	twice  bool                                            // every delete reaches the table twice, as after an answer that was lost
	// between, when set, is called between the two.
	between func(n int64)
	calls   atomic.Int64
}

func (a *eraseAPI) begin() (n int64, err error) {
	n = a.calls.Add(1)
	if a.before != nil {
		err = a.before(n)
	}
	return n, err
}

func (a *eraseAPI) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	n, err := a.begin()
	if err != nil {
		return nil, err
	}
	if a.twice {
		_, _ = a.Client.DeleteItem(ctx, in, o...)
		if a.between != nil {
			a.between(n)
		}
	}
	return a.Client.DeleteItem(ctx, in, o...)
}

func (a *eraseAPI) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	n, err := a.begin()
	if err != nil {
		return nil, err
	}
	out := &dynamodb.BatchWriteItemOutput{UnprocessedItems: map[string][]types.WriteRequest{}}
	for table, all := range in.RequestItems {
		if a.leave != nil {
			k := a.leave(n, all)
			if k > 0 {
				out.UnprocessedItems[table] = all[len(all)-k:]
			}
			all = all[:len(all)-k]
		}
		if len(all) == 0 {
			continue
		}
		batch := &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: all}}
		if a.twice {
			_, _ = a.Client.BatchWriteItem(ctx, batch, o...)
			if a.between != nil {
				a.between(n)
			}
		}
		if _, err := a.Client.BatchWriteItem(ctx, batch, o...); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f *fixture) eraser(t *testing.T) (*checkpoint.Eraser, *eraseAPI) {
	t.Helper()
	api := &eraseAPI{Client: dynamodbtest.New(t)}
	return checkpoint.NewEraser(api, f.table, checkpoint.Options{Now: func() time.Time { return *f.now.Load() }}), api
}

// items is every key in the table.
func (f *fixture) items(t *testing.T) []string {
	t.Helper()
	var keys []string
	pages := dynamodb.NewScanPaginator(dynamodbtest.New(t), &dynamodb.ScanInput{TableName: &f.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			keys = append(keys, it["pk"].(*types.AttributeValueMemberS).Value+" "+it["sk"].(*types.AttributeValueMemberS).Value)
		}
	}
	return keys
}

// fill gives a ticket's thread 30 tasks, one of them failed, and 29 checkpoints, one of them with its data in parts.
func (f *fixture) fill(t *testing.T, ticket string) checkpoint.Holdings {
	t.Helper()
	thread := task.TicketThread(ticket)
	f.succeed(t, thread, random(720<<10))
	for range 27 {
		f.succeed(t, thread, `"short"`)
	}
	c := last(f.claim(t, thread), `"closed"`)
	c.Newest, c.Ticket = 28, &task.Ticket{ID: ticket, Version: 1, Status: "closed", UpdatedAt: f.in(0)}
	if _, err := f.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	rec := f.claim(t, thread)
	if err := f.End(t.Context(), rec, checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: "BROKEN", Message: "broken"}}); err != nil {
		t.Fatal(err)
	}
	f.pass(checkpoint.Settling)
	return checkpoint.Holdings{Checkpoints: 29, DataParts: 2, Tasks: 30, Results: 1, Tickets: 1, Failed: 1}
}

func wantHoldings(t *testing.T, what string, got, want checkpoint.Holdings) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// neighbours are threads and tickets whose ids begin or end alike; what they hold must stay.
func (f *fixture) neighbours(t *testing.T) (before []string) {
	t.Helper()
	for _, thread := range []string{"ticket-TK-10", "ticket-TK", "TK-1", "th-1"} {
		f.succeed(t, thread, `"mine"`)
	}
	c := last(f.claim(t, "th-1"), `"open"`)
	c.Newest, c.Ticket = 1, &task.Ticket{ID: "TK-10", Version: 1, Status: "open", UpdatedAt: f.in(0)}
	if _, err := f.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return f.items(t)
}

func TestAThreadIsForgottenWithEverythingAboutIt(t *testing.T) {
	t.Parallel()
	for what, set := range map[string]func(*eraseAPI){
		"plainly": func(*eraseAPI) {},
		"with unprocessed items": func(a *eraseAPI) {
			a.leave = func(n int64, all []types.WriteRequest) int { return len(all) * int(n%3) / 2 } // none, half, all
		},
		"with answers that are lost": func(a *eraseAPI) { a.twice = true },
		// All of a thread lies in one partition, and what is deleted of large data counts by its size.
		"faster than the table takes it": func(a *eraseAPI) {
			a.before = func(n int64) error {
				if n%3 == 1 {
					return fmt.Errorf("exceeded maximum number of attempts: %w", &types.ProvisionedThroughputExceededException{})
				}
				return nil
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			stays := f.neighbours(t)
			want := f.fill(t, "TK-1")
			eraser, api := f.eraser(t)
			set(api)
			there, err := eraser.Look(t.Context(), "ticket-TK-1")
			if err != nil {
				t.Fatal(err)
			}
			wantHoldings(t, "found", there, want)
			told := 0
			gone, err := eraser.Forget(t.Context(), "ticket-TK-1", false, func(items int) { told = max(told, items) })
			if err != nil {
				t.Fatal(err)
			}
			wantHoldings(t, "deleted", gone, want)
			if told != want.Items() {
				t.Errorf("progress went to %d, want %d", told, want.Items())
			}
			if diff := cmp.Diff(stays, f.items(t), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
				t.Errorf("the table (-want +got):\n%s", diff)
			}
			again, err := eraser.Forget(t.Context(), "ticket-TK-1", false, nil)
			if err != nil || again.Items() != 0 {
				t.Errorf("once more: got %+v, %v, want nothing deleted", again, err)
			}
		})
	}
}

// Killed before any of its writes, it leaves nothing that a read stumbles over, and ends the job when it is run again.
func TestForgettingGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	stays := f.neighbours(t)
	var sum checkpoint.Holdings
	want := f.fill(t, "TK-1")
	// Each run is killed at a later write than the one before; the first ones delete records, the last ones the ticket.
	for _, at := range []int64{1, 2, 20, 12, 2, 2, 2, 1} {
		eraser, api := f.eraser(t)
		ctx, kill := context.WithCancel(t.Context())
		api.before = func(n int64) error {
			if n >= at {
				kill()
			}
			return ctx.Err()
		}
		gone, err := eraser.Forget(ctx, "ticket-TK-1", false, nil)
		if err == nil {
			t.Fatalf("killed at write %d: no error, deleted %+v", at, gone)
		}
		wantErr(t, err, context.Canceled)
		sum = added(sum, gone)
		f.readable(t, "ticket-TK-1")
	}
	eraser, _ := f.eraser(t)
	gone, err := eraser.Forget(t.Context(), "ticket-TK-1", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if gone.Items() == 0 {
		t.Error("nothing was left for the last run: the kills came too late")
	}
	// A killed run may have deleted what it has not counted any more.
	sum = added(sum, gone)
	if sum.Items() > want.Items() || sum.Checkpoints != want.Checkpoints || sum.Tasks > want.Tasks {
		t.Errorf("all runs have counted %+v, want at most %+v", sum, want)
	}
	if diff := cmp.Diff(stays, f.items(t), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
}

// Killed before any of its writes it leaves no checkpoint without its data, which a read would stumble over.
func TestNoCheckpointIsLeftWithoutItsData(t *testing.T) {
	t.Parallel()
	long := random(720 << 10)
	for what, all := range map[string][]string{"of an older one": {long, `"short"`}, "of the newest": {`"short"`, long}} {
		for at := int64(4); at <= 7; at++ { // after two records and the result: two checkpoints, two parts
			t.Run(fmt.Sprint(what, " before write ", at), func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				for _, data := range all {
					f.succeed(t, "th-1", data)
				}
				eraser, api := f.eraser(t)
				api.before = func(n int64) error {
					if n >= at {
						return context.Canceled
					}
					return nil
				}
				_, err := eraser.Forget(t.Context(), "th-1", false, nil)
				wantErr(t, err, context.Canceled)
				f.readable(t, "th-1")
			})
		}
	}
}

func added(a, b checkpoint.Holdings) checkpoint.Holdings {
	return checkpoint.Holdings{
		Checkpoints: a.Checkpoints + b.Checkpoints, DataParts: a.DataParts + b.DataParts, Tasks: a.Tasks + b.Tasks,
		Results: a.Results + b.Results, Tickets: a.Tickets + b.Tickets,
	}
}

// readable fails the test when a read of the thread gives anything but what is there, or that it is not.
func (f *fixture) readable(t *testing.T, thread string) {
	t.Helper()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
			t.Errorf("%s in between: %v", what, err)
		}
	}
	_, err := f.Result(t.Context(), thread)
	ok("the result", err)
	_, _, err = f.History(t.Context(), thread, "", 100)
	ok("the history", err)
	for _, n := range []uint64{1, 2, 29} {
		_, err = f.Checkpoint(t.Context(), thread, n)
		ok(fmt.Sprint("checkpoint ", n), err)
	}
	_, err = f.Latest(t.Context(), thread, 0, 50)
	ok("the latest", err)
}

func TestAnUnfinishedTaskHoldsForgettingUp(t *testing.T) {
	t.Parallel()
	for status, begin := range map[checkpoint.Status]func(*testing.T, *fixture){
		checkpoint.Queued: func(t *testing.T, f *fixture) {
			t.Helper()
			m := task.Message{ID: task.NewID("th-1", f.in(0)), Thread: "th-1", Task: "rag_query"}
			if _, created, err := f.Create(t.Context(), m, f.in(0)); err != nil || !created {
				t.Fatalf("create: %v, %v", created, err)
			}
		},
		checkpoint.Running: func(t *testing.T, f *fixture) { t.Helper(); f.claim(t, "th-1") },
		checkpoint.Retrying: func(t *testing.T, f *fixture) {
			t.Helper()
			end := checkpoint.End{Status: checkpoint.Retrying, Failure: task.Failure{Code: "BUSY"}, NextRetryAt: f.in(time.Second)}
			if err := f.End(t.Context(), f.claim(t, "th-1"), end); err != nil {
				t.Fatal(err)
			}
		},
		// Its message may be delivered until SQS has moved it.
		checkpoint.Failed: func(t *testing.T, f *fixture) {
			t.Helper()
			if err := f.End(t.Context(), f.claim(t, "th-1"), checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: "BROKEN"}}); err != nil {
				t.Fatal(err)
			}
			f.pass(checkpoint.Settling - time.Millisecond)
		},
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.succeed(t, "th-1", `"done"`)
			begin(t, f)
			before := f.items(t)
			eraser, _ := f.eraser(t)
			gone, err := eraser.Forget(t.Context(), "th-1", false, nil)
			wantErr(t, err, checkpoint.ErrUnfinished)
			if after := f.items(t); gone.Items() != 0 || len(after) != len(before) {
				t.Errorf("deleted %+v, %d of %d items are left, want all", gone, len(after), len(before))
			}
			if gone, err = eraser.Forget(t.Context(), "th-1", true, nil); err != nil || len(f.items(t)) != 0 {
				t.Errorf("forced: deleted %+v (%v), left %v, want nothing left", gone, err, f.items(t))
			}
		})
	}
}

// A failed task is redriven while its thread is being deleted: it has its record and its checkpoints still.
func TestARedriveHoldsForgettingUp(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	done, err := f.Commit(t.Context(), checkpoint.Commit{Record: f.claim(t, "th-1"), Step: "retrieve", Data: []byte(`"passages"`)})
	if err != nil {
		t.Fatal(err)
	}
	rec := done.Record
	if err := f.End(t.Context(), rec, checkpoint.End{Status: checkpoint.Failed, Failure: task.Failure{Code: "BROKEN"}}); err != nil {
		t.Fatal(err)
	}
	f.pass(checkpoint.Settling)
	eraser, api := f.eraser(t)
	api.before = func(n int64) error {
		if n == 1 {
			f.claimTask(t, rec.TaskID, "m-redriven")
		}
		return nil
	}
	_, err = eraser.Forget(t.Context(), "th-1", false, nil)
	wantErr(t, err, checkpoint.ErrUnfinished)
	if got := f.record(t, rec.TaskID); got.Status != checkpoint.Running {
		t.Errorf("the task is %s, want it running", got.Status)
	}
	if _, err := f.Checkpoint(t.Context(), "th-1", 1); err != nil {
		t.Errorf("checkpoint 1: %v, want it to be there", err)
	}
}

// A task that comes to the thread while that is being deleted loses nothing, whenever it comes.
func TestForgettingLeavesWhatComesInBetween(t *testing.T) {
	t.Parallel()
	for at := int64(1); at <= 4; at++ { // two records, the result, the checkpoints
		t.Run(fmt.Sprint("before write ", at), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.succeed(t, "th-1", `"old"`)
			f.succeed(t, "th-1", `"old"`)
			f.pass(time.Second)
			eraser, api := f.eraser(t)
			var done checkpoint.Committed
			api.before = func(n int64) error {
				if n == at {
					done = f.succeed(t, "th-1", `"new"`)
				}
				return nil
			}
			_, err := eraser.Forget(t.Context(), "th-1", false, nil)
			if err != nil && !errors.Is(err, checkpoint.ErrUnfinished) {
				t.Fatal(err)
			}
			f.record(t, done.Record.TaskID)
			if cp, err := f.Checkpoint(t.Context(), "th-1", done.N); err != nil || string(cp.Data) != `"new"` {
				t.Errorf("its checkpoint is %+v (%v)", cp, err)
			}
			if res, err := f.Result(t.Context(), "th-1"); err != nil || string(res.Data) != `"new"` {
				t.Errorf("its result is %+v (%v)", res, err)
			}
		})
	}
}

// With the last checkpoint gone the thread's numbers begin anew, and the task that comes then takes those of what is still being
// deleted.
func TestForgettingLeavesANewTaskThatTakesTheOldNumbers(t *testing.T) {
	t.Parallel()
	for what, moment := range map[string]func(a *eraseAPI, come func()){
		"before the old data goes": func(a *eraseAPI, come func()) {
			a.before = func(n int64) error {
				if n == 4 { // after the record, the result and the checkpoint
					come()
				}
				return nil
			}
		},
		"before a delete whose answer was lost is repeated": func(a *eraseAPI, come func()) {
			a.twice = true
			a.between = func(n int64) {
				if n == 3 {
					come()
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.succeed(t, "th-1", random(720<<10))
			f.pass(time.Second)
			eraser, api := f.eraser(t)
			var done checkpoint.Committed
			data := random(720 << 10)
			moment(api, func() { done = f.succeed(t, "th-1", data) })
			if _, err := eraser.Forget(t.Context(), "th-1", false, nil); err != nil && !errors.Is(err, checkpoint.ErrUnfinished) {
				t.Fatal(err)
			}
			if done.N != 1 {
				t.Fatalf("the new task's checkpoint is %d, want 1", done.N)
			}
			if cp, err := f.Checkpoint(t.Context(), "th-1", 1); err != nil || string(cp.Data) != data {
				t.Errorf("its checkpoint holds %d bytes (%v), want %d", len(cp.Data), err, len(data))
			}
		})
	}
}

// What has expired and still lies in the table goes as well.
func TestForgettingTakesWhatHasExpired(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.succeed(t, "th-1", `"old"`)
	f.pass(91 * 24 * time.Hour)
	eraser, _ := f.eraser(t)
	if gone, err := eraser.Forget(t.Context(), "th-1", false, nil); err != nil || gone.Items() != 3 || len(f.items(t)) != 0 {
		t.Errorf("deleted %+v (%v), left %v, want all three items deleted", gone, err, f.items(t))
	}
}
