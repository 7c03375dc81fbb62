package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/task"
)

// Commit is one finished step.
type Commit struct {
	Record   Record // as the claim, or the commit before, left it
	Newest   uint64 // the newest checkpoint of the thread that was read or committed; it may be outdated
	Step     string
	Data     jsontext.Value
	Last     bool // the data is the task's result, and the task has succeeded
	Duration time.Duration
	Tokens   task.Tokens  // used by the step; the record adds them up
	Ticket   *task.Ticket // to change with it; nil: none
}

// Committed is what became of a [Commit].
type Committed struct {
	Record    Record // to go on with
	N         uint64 // the checkpoint's number
	Conflicts int    // how often another write came in between
}

// Commit writes a step's checkpoint, the task's record and, where they belong to it, the result and the ticket in one
// transaction. When another task of the thread has taken the number it takes the next one; when
// another transaction is at the same items it tries again, at random intervals, until the context ends.
//
// Its errors are [ErrFenceLost], [ErrTicketChanged] and [ErrTooLarge]; after any of them nothing was written.
func (s *Store) Commit(ctx context.Context, c Commit) (Committed, error) {
	data, err := pack(c.Data)
	if err != nil {
		return Committed{}, fmt.Errorf("commit step %q of task %s: %w", c.Step, c.Record.TaskID, err)
	}
	done := Committed{N: c.Newest + 1}
	done.Record, err = backoff.Retry(ctx, func() (Record, error) {
		err := s.write(ctx, c, data, done.N)
		if err == nil {
			return c.after(done.N), nil
		}
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return Record{}, backoff.Permanent(err)
		}
		done.Conflicts++
		rec, again, err := s.cancelled(ctx, c, cancelled.CancellationReasons, &done.N)
		if err != nil && !again {
			err = backoff.Permanent(err)
		}
		return rec, err
	}, jittered()...)
	if err != nil {
		return Committed{Conflicts: done.Conflicts}, fmt.Errorf("commit step %q of task %s: %w", c.Step, c.Record.TaskID, err)
	}
	return done, nil
}

// Positions of a commit's writes in its transaction.
const (
	writeRecord = iota
	writeCheckpoint
	writeOthers // the ticket, if there is one, and then what cannot be refused by itself
)

// cancelled decides what a cancelled transaction means. The record comes first: it alone says whether this worker
// still owns the task.
func (s *Store) cancelled(ctx context.Context, c Commit, reasons []types.CancellationReason, n *uint64) (rec Record, again bool, err error) {
	failed := func(i int) bool {
		return i < len(reasons) && aws.ToString(reasons[i].Code) == "ConditionalCheckFailed"
	}
	if failed(writeRecord) {
		now, err := record(reasons[writeRecord].Item)
		if err != nil {
			return Record{}, false, err
		}
		if step, ours := c.committed(now); ours {
			*n = step.N
			return now, false, nil // an earlier try, whose answer was lost
		}
		return Record{}, false, ErrFenceLost
	}
	for i, reason := range reasons {
		switch code := aws.ToString(reason.Code); code {
		case "None", "ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		default:
			return Record{}, false, fmt.Errorf("write %d was refused: %s: %s", i, code, aws.ToString(reason.Message))
		}
	}
	if c.Ticket != nil && failed(writeOthers) {
		return Record{}, false, ErrTicketChanged
	}
	conflict := errors.New("kept running into other writes to the same thread")
	for i := range reasons {
		if failed(i) { // the number, or what belongs to the number, is taken
			newest, err := s.newestN(ctx, c.Record.TaskID.Thread())
			if err != nil {
				return Record{}, false, err
			}
			*n = newest + 1
			return Record{}, true, conflict
		}
	}
	return Record{}, true, conflict
}

// committed reports whether the record shows that this very commit took effect.
func (c Commit) committed(now Record) (Step, bool) {
	at := len(c.Record.Steps)
	if now.Lease.Fence != c.Record.Lease.Fence || len(now.Steps) != at+1 || now.Steps[at].Name != c.Step {
		return Step{}, false
	}
	return now.Steps[at], true
}

// after is the record as the commit leaves it, as far as later commits of the same attempt need it.
func (c Commit) after(n uint64) Record {
	rec := c.Record
	rec.Steps = append(rec.Steps[:len(rec.Steps):len(rec.Steps)], Step{Name: c.Step, N: n})
	rec.Step, rec.Tokens = c.Step, rec.Tokens.Plus(c.Tokens)
	if c.Last {
		rec.Status, rec.ResultN, rec.Lease = Succeeded, n, Lease{Fence: rec.Lease.Fence}
	}
	return rec
}

func (s *Store) write(ctx context.Context, c Commit, data packed, n uint64) error {
	var writes []types.TransactWriteItem
	add := func(w types.TransactWriteItem, err error) error {
		writes = append(writes, w)
		return err
	}
	err := errors.Join(
		add(s.recordWrite(c, n), nil),
		add(s.checkpointWrite(c, data, n)))
	if c.Ticket != nil {
		err = errors.Join(err, add(s.ticketWrite(*c.Ticket)))
	}
	if c.Last {
		err = errors.Join(err, add(s.resultWrite(c, data, n)))
	}
	for i, part := range data.parts {
		writes = append(writes, s.partWrite(c, part, n, i))
	}
	if err != nil {
		return err
	}
	_, err = s.api.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: writes})
	return err
}

func (s *Store) recordWrite(c Commit, n uint64) types.TransactWriteItem {
	w := written{
		names:  map[string]string{"#status": "status"},
		update: "SET steps = list_append(if_not_exists(steps, :none), :steps), step = :step, updated_at = :now",
		// The number of steps is part of the condition, so that a commit whose answer was lost is not applied twice.
		condition: "#status = :running AND fence = :fence AND attribute_not_exists(steps)",
		values: item{
			":running": text(Running), ":fence": signed(c.Record.Lease.Fence), ":none": list(),
			":steps": list(object(item{"name": text(c.Step), "n": unsigned(n)})), ":step": text(c.Step), ":now": text(stamp(s.now())),
		},
	}
	if k := len(c.Record.Steps); k > 0 {
		w.condition = "#status = :running AND fence = :fence AND size(steps) = :k"
		w.values[":k"] = signed(k)
	}
	if c.Last {
		attempt := attemptName(c.Record)
		w.update += ", #status = :succeeded, result_n = :n, " + attempt + ".ended_at = :now, " + attempt + ".step = :step"
		w.values[":succeeded"], w.values[":n"] = text(Succeeded), unsigned(n)
	}
	if c.Tokens != (task.Tokens{}) {
		w.update += " ADD tokens_in :in, tokens_out :out"
		w.values[":in"], w.values[":out"] = signed(c.Tokens.Input), signed(c.Tokens.Output)
	}
	if c.Last {
		w.update += " REMOVE lease_owner, lease_until, #error"
		w.names["#error"] = "error"
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: recordKey(c.Record),
		ConditionExpression: &w.condition, UpdateExpression: &w.update,
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

func (s *Store) checkpointWrite(c Commit, data packed, n uint64) (types.TransactWriteItem, error) {
	it, err := attributevalue.MarshalMap(checkpointItem{
		PK: threadPK(c.Record.TaskID.Thread()), SK: checkpointSK(n), Type: kindCheckpoint,
		TaskID: string(c.Record.TaskID), Task: c.Record.Task, Step: c.Step, Parts: len(data.parts), Last: c.Last,
		Attempt: len(c.Record.Attempts), Duration: c.Duration.Milliseconds(),
		TokensIn: c.Tokens.Input, TokensOut: c.Tokens.Output,
		UpdatedAt: stamp(s.now()), ExpiresAt: s.expiry(),
	})
	if data.inline != nil && err == nil {
		it["data"] = data.inline
	}
	return s.putWrite(it, err, notThere, nil)
}

func (s *Store) resultWrite(c Commit, data packed, n uint64) (types.TransactWriteItem, error) {
	it, err := attributevalue.MarshalMap(resultItem{
		PK: threadPK(c.Record.TaskID.Thread()), SK: resultKey, Type: kindResult,
		TaskID: string(c.Record.TaskID), N: n, CompletedAt: stamp(s.now()), ExpiresAt: s.expiry(),
	})
	// Data that takes several items stays with the checkpoint, where number n leads.
	if data.inline != nil && err == nil {
		it["data"] = data.inline
	}
	return s.putWrite(it, err, notThere+" OR n < :n OR expires_at <= :now", item{":n": unsigned(n), ":now": signed(s.now().Unix())})
}

func (s *Store) partWrite(c Commit, part []byte, n uint64, i int) types.TransactWriteItem {
	it := key(threadPK(c.Record.TaskID.Thread()), dataSK(n, i))
	it["type"] = &types.AttributeValueMemberS{Value: kindData}
	it["data"] = &types.AttributeValueMemberB{Value: part}
	it["expires_at"] = &types.AttributeValueMemberN{Value: fmt.Sprint(s.expiry())}
	// No condition: the checkpoint's own decides whom number n belongs to.
	return types.TransactWriteItem{Put: &types.Put{TableName: &s.table, Item: it}}
}

func (s *Store) ticketWrite(t task.Ticket) (types.TransactWriteItem, error) {
	it, err := attributevalue.MarshalMap(ticketItem{
		PK: ticketPK(t.ID), SK: ticketKey, Type: kindTicket,
		Status: t.Status, Version: t.Version, UpdatedAt: stamp(t.UpdatedAt),
	})
	if t.Version <= 1 {
		return s.putWrite(it, err, notThere, nil)
	}
	return s.putWrite(it, err, "version = :before", item{":before": signed(t.Version - 1)})
}

// putWrite is a conditional write of an item; err: why there is none.
func (s *Store) putWrite(it item, err error, condition string, values item) (types.TransactWriteItem, error) {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &s.table, Item: it, ConditionExpression: &condition, ExpressionAttributeValues: values,
	}}, err
}
