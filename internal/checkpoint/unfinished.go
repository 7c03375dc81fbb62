package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"agentworker/internal/task"
)

// Sweep is how far the search for unfinished tasks has come in the table. Its zero value stands for the beginning.
type Sweep struct {
	// Next is where to go on; empty: at the beginning.
	Next SweepKey
	// Ended is when the search last came to the table's end; zero: never.
	Ended time.Time
}

// SweepKey is the key of the item that was looked at last.
type SweepKey struct {
	PK string `dynamodbav:"pk"`
	SK string `dynamodbav:"sk"`
}

// Unfinished looks for tasks that have neither succeeded nor failed and whose records have not changed since before. It
// reads one page of the table, of up to 1 MB, from where the search stands, and gives with the tasks how far it has come:
// past the last page Next is empty. The page is read eventually consistent, at half the price; whoever changes a record says
// which one he has seen.
// Source: Amazon DynamoDB Developer Guide, "Scanning tables in DynamoDB".
func (s *Store) Unfinished(ctx context.Context, before time.Time, from SweepKey) (records []Record, next SweepKey, err error) {
	expr, err := expression.NewBuilder().WithFilter(
		expression.Name("type").Equal(expression.Value(kindHistory)).
			And(expression.Name("status").In(expression.Value(Queued), expression.Value(Running), expression.Value(Retrying)),
				expression.Name("updated_at").LessThan(expression.Value(stamp(before))))).Build()
	if err != nil {
		return nil, SweepKey{}, err
	}
	in := &dynamodb.ScanInput{
		TableName: &s.table, FilterExpression: expr.Filter(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
	}
	if from != (SweepKey{}) {
		in.ExclusiveStartKey = key(from.PK, from.SK)
	}
	out, err := s.api.Scan(ctx, in)
	if err != nil {
		return nil, SweepKey{}, fmt.Errorf("look for unfinished tasks: %w", err)
	}
	for _, it := range out.Items {
		if s.expired(it) {
			continue
		}
		rec, err := record(it)
		if err != nil {
			return nil, SweepKey{}, err
		}
		records = append(records, rec)
	}
	if err := attributevalue.UnmarshalMap(out.LastEvaluatedKey, &next); err != nil {
		return nil, SweepKey{}, fmt.Errorf("decode where the search stands: %w", err)
	}
	return records, next, nil
}

// GiveUp marks a task as failed that nothing will run any more, unless its record has changed since it was read or a worker
// is at it; given says whether it did. Should a message of the task turn up after all, under an id that the task never
// had, it is run: see [Store.Claim].
func (s *Store) GiveUp(ctx context.Context, rec Record, reason task.Failure) (given bool, err error) {
	if rec.Live(s.now()) {
		return false, nil
	}
	unchanged := is(rec.Status).And(expression.Name("updated_at").Equal(expression.Value(stamp(rec.UpdatedAt))), fenceIs(rec.Lease.Fence))
	at := stamp(s.now())
	upd := expression.Set(expression.Name("status"), expression.Value(Failed)).
		Set(expression.Name("error"), expression.Value(failureItem(reason))).
		Set(expression.Name("updated_at"), expression.Value(at)).
		Remove(expression.Name("lease_owner")).Remove(expression.Name("lease_until")).Remove(expression.Name("next_retry_at"))
	_, err = s.update(ctx, recordKey(rec), unchanged, upd)
	var refusal *refusedError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &refusal):
		return false, fmt.Errorf("give task %s up: %w", rec.TaskID, err)
	}
	now, err := record(refusal.item)
	if err != nil {
		return false, fmt.Errorf("give task %s up: %w", rec.TaskID, err)
	}
	// Our own write, whose answer was lost, is there already.
	return now.Status == Failed && now.Lease.Fence == rec.Lease.Fence && now.Error != nil && *now.Error == reason && stamp(now.UpdatedAt) == at, nil
}

const sweepPK, sweepSK = "sweep", "state"

type sweepItem struct {
	PK    string   `dynamodbav:"pk"`
	SK    string   `dynamodbav:"sk"`
	Type  string   `dynamodbav:"type"`
	Next  SweepKey `dynamodbav:"next"`
	Ended string   `dynamodbav:"ended_at"`
}

// Sweep reads how far the search has come.
func (s *Store) Sweep(ctx context.Context) (Sweep, error) {
	it, err := s.get(ctx, sweepPK, sweepSK)
	if errors.Is(err, ErrNotFound) {
		return Sweep{}, nil
	}
	if err != nil {
		return Sweep{}, err
	}
	var have sweepItem
	if err := attributevalue.UnmarshalMap(it, &have); err != nil {
		return Sweep{}, fmt.Errorf("decode where the search stands: %w", err)
	}
	return Sweep{Next: have.Next, Ended: unstamp(have.Ended)}, nil
}

// Swept notes how far the search has come. Of two searches at once the later note counts: looking at a part of the table
// twice, or at the next round, does no harm.
func (s *Store) Swept(ctx context.Context, sweep Sweep) error {
	it, err := attributevalue.MarshalMap(sweepItem{PK: sweepPK, SK: sweepSK, Type: kindSweep, Next: sweep.Next, Ended: stamp(sweep.Ended)})
	if err != nil {
		return err
	}
	_, err = s.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.table, Item: it})
	if err != nil {
		return fmt.Errorf("note where the search stands: %w", err)
	}
	return nil
}
