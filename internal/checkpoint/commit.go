package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
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
		add(s.recordWrite(c, n)),
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

func (s *Store) recordWrite(c Commit, n uint64) (types.TransactWriteItem, error) {
	now := stamp(s.now())
	upd := expression.
		Set(expression.Name("steps"), expression.ListAppend(
			expression.IfNotExists(expression.Name("steps"), expression.Value([]stepItem{})),
			expression.Value([]stepItem{{Name: c.Step, N: n}}))).
		Set(expression.Name("step"), expression.Value(c.Step)).
		Set(expression.Name("updated_at"), expression.Value(now))
	if c.Tokens != (task.Tokens{}) {
		upd = upd.Add(expression.Name("tokens_in"), expression.Value(c.Tokens.Input)).
			Add(expression.Name("tokens_out"), expression.Value(c.Tokens.Output))
	}
	if c.Last {
		attempt := attemptName(c.Record)
		upd = upd.Set(expression.Name("status"), expression.Value(Succeeded)).
			Set(expression.Name("result_n"), expression.Value(n)).
			Set(expression.Name(attempt+".ended_at"), expression.Value(now)).
			Set(expression.Name(attempt+".step"), expression.Value(c.Step)).
			Remove(expression.Name("lease_owner")).Remove(expression.Name("lease_until")).
			Remove(expression.Name("error"))
	}
	// The number of steps is part of the condition, so that a commit whose answer was lost is not
	// applied twice.
	steps := expression.Name("steps").AttributeNotExists()
	if k := len(c.Record.Steps); k > 0 {
		steps = expression.Name("steps").Size().Equal(expression.Value(k))
	}
	expr, err := expression.NewBuilder().WithUpdate(upd).
		WithCondition(is(Running).And(fenceIs(c.Record.Lease.Fence), steps)).Build()
	if err != nil {
		return types.TransactWriteItem{}, err
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: recordKey(c.Record),
		ConditionExpression: expr.Condition(), UpdateExpression: expr.Update(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}, nil
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
	return s.putWrite(it, err, expression.Name("pk").AttributeNotExists())
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
	return s.putWrite(it, err, expression.Name("pk").AttributeNotExists().
		Or(expression.Name("n").LessThan(expression.Value(n)),
			expression.Name("expires_at").LessThanEqual(expression.Value(s.now().Unix()))))
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
	cond := expression.Name("version").Equal(expression.Value(t.Version - 1))
	if t.Version <= 1 {
		cond = expression.Name("pk").AttributeNotExists()
	}
	return s.putWrite(it, err, cond)
}

func (s *Store) putWrite(it item, err error, cond expression.ConditionBuilder) (types.TransactWriteItem, error) {
	if err != nil {
		return types.TransactWriteItem{}, err
	}
	expr, err := expression.NewBuilder().WithCondition(cond).Build()
	if err != nil {
		return types.TransactWriteItem{}, err
	}
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &s.table, Item: it, ConditionExpression: expr.Condition(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
	}}, nil
}
