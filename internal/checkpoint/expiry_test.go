package checkpoint_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
)

// Every read gives an item until the second in which it expires, and not from then on, whether or not the table has
// deleted it.
func TestNoReadGivesWhatHasExpired(t *testing.T) {
	t.Parallel()
	const retention = 90 * 24 * time.Hour
	for what, c := range map[string]struct {
		retention time.Duration
		data      bool // it gives the data, too
		there     func(f *fixture, done checkpoint.Committed) (bool, error)
	}{
		"Record": {retention, false, func(f *fixture, done checkpoint.Committed) (bool, error) {
			_, err := f.Record(t.Context(), done.Record.TaskID)
			return err == nil, err
		}},
		"Checkpoint": {retention, true, func(f *fixture, done checkpoint.Committed) (bool, error) {
			_, err := f.Checkpoint(t.Context(), "th-1", done.N)
			return err == nil, err
		}},
		"Result": {retention, true, func(f *fixture, _ checkpoint.Committed) (bool, error) {
			_, err := f.Result(t.Context(), "th-1")
			return err == nil, err
		}},
		"History": {retention, false, func(f *fixture, _ checkpoint.Committed) (bool, error) {
			records, next, err := f.History(t.Context(), "th-1", "", 10)
			return len(records) > 0 || next != "", err
		}},
		"Latest": {retention, true, func(f *fixture, _ checkpoint.Committed) (bool, error) {
			latest, err := f.Latest(t.Context(), "th-1", 0, 10)
			return len(latest) > 0 && (latest[0].Data != nil || latest[0].Last), err
		}},
		"FindByMessage": {retention, false, func(f *fixture, done checkpoint.Committed) (bool, error) {
			sent := done.Record.SubmittedAt
			_, err := f.FindByMessage(t.Context(), "th-1", "m-1", sent.Add(-time.Hour), sent.Add(time.Hour))
			return err == nil, err
		}},
		"DeadLettered": {retention, false, func(f *fixture, done checkpoint.Committed) (bool, error) {
			rec, err := f.DeadLettered(t.Context(), checkpoint.DeadLetter{ID: done.Record.TaskID, MessageID: "m-1", SentAt: *f.now.Load()})
			return rec.Status == checkpoint.Succeeded, err
		}},
		"ReserveKey": {checkpoint.IdempotencyKeyLife, false, func(f *fixture, _ checkpoint.Committed) (bool, error) {
			_, reserved, err := f.ReserveKey(t.Context(), checkpoint.Key{Hash: "h", Body: "b", TaskID: task.NewID("th-2", *f.now.Load())})
			return !reserved, err
		}},
	} {
		stored := map[string]string{"in one item": `"short"`}
		if c.data {
			stored["in several"] = random(720 << 10)
		}
		for how, data := range stored {
			t.Run(what+" "+how, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				if _, reserved, err := f.ReserveKey(t.Context(), checkpoint.Key{Hash: "h", Body: "b", TaskID: task.NewID("th-1", *f.now.Load())}); err != nil || !reserved {
					t.Fatalf("reserve: %v, %v", reserved, err)
				}
				done := f.succeed(t, "th-1", data)
				f.pass(c.retention - time.Second)
				if there, err := c.there(f, done); err != nil || !there {
					t.Errorf("a second before it expires: there is %v (%v), want it", there, err)
				}
				f.pass(time.Second)
				if there, err := c.there(f, done); there || err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
					t.Errorf("when it expires: there is %v (%v), want nothing", there, err)
				}
			})
		}
	}
}

// DynamoDB deletes expired items in any order. A thread whose newest checkpoint has lost its data that way, and is still
// there itself, takes tasks as before, and goes on counting.
func TestAThreadOutlivesTheDataOfItsNewestCheckpoint(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.succeed(t, "th-1", random(720<<10))
	f.pass(91 * 24 * time.Hour)
	client := dynamodbtest.New(t)
	for _, part := range []string{"00", "01"} {
		out, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
			TableName: &f.table, ReturnValues: types.ReturnValueAllOld, Key: map[string]types.AttributeValue{
				"pk": &types.AttributeValueMemberS{Value: "thread#th-1"},
				"sk": &types.AttributeValueMemberS{Value: "data#00000000000000000001#" + part},
			},
		})
		if err != nil || out.Attributes == nil {
			t.Fatalf("part %s was not there (%v)", part, err)
		}
	}
	if done := f.succeed(t, "th-1", `"new"`); done.N != 2 {
		t.Errorf("the new task's checkpoint is %d, want 2", done.N)
	}
}
