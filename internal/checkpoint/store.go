package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/cenkalti/backoff/v5"
)

// API is what the store calls of the DynamoDB client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Options of a [Store]. Their zero value is usable.
type Options struct {
	// Now is the clock; nil: the system's. It decides about leases and expiry, never about which of
	// two writes wins.
	Now func() time.Time
	// Retention is how long after its last write an item expires, a task's record after it was last submitted or claimed;
	// zero: 90 days.
	Retention time.Duration
}

// Store is the table. It is safe for concurrent use, by any number of processes. Every read is strongly
// consistent, but for [Store.Unfinished], and leaves out expired items. All writes but [Store.Swept] are conditional, so that repeating one after
// an answer was lost does no harm.
type Store struct {
	api       API
	table     string
	now       func() time.Time
	retention time.Duration
}

const (
	defaultRetention = 90 * 24 * time.Hour
	keyRetention     = 24 * time.Hour
)

// New makes a store over an existing table.
func New(api API, table string, opts Options) *Store {
	s := &Store{api: api, table: table, now: opts.Now, retention: opts.Retention}
	if s.now == nil {
		s.now = time.Now
	}
	if s.retention == 0 {
		s.retention = defaultRetention
	}
	return s
}

func (s *Store) expiry() int64 { return s.now().Add(s.retention).Unix() }

type item = map[string]types.AttributeValue

func key(pk, sk string) item {
	return item{"pk": &types.AttributeValueMemberS{Value: pk}, "sk": &types.AttributeValueMemberS{Value: sk}}
}

// get reads one item; expired ones count as absent.
func (s *Store) get(ctx context.Context, pk, sk string) (item, error) {
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: key(pk, sk), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", pk, sk, err)
	}
	if out.Item == nil || s.expired(out.Item) {
		return nil, fmt.Errorf("%s %s: %w", pk, sk, ErrNotFound)
	}
	return out.Item, nil
}

// update changes one item under a condition. When the condition fails the error is a *refusedError
// with the item as it is.
func (s *Store) update(ctx context.Context, k item, cond expression.ConditionBuilder, upd expression.UpdateBuilder) (item, error) {
	expr, err := expression.NewBuilder().WithCondition(cond).WithUpdate(upd).Build()
	if err != nil {
		return nil, err
	}
	return s.updateWith(ctx, k, written{*expr.Condition(), *expr.Update(), expr.Names(), expr.Values()})
}

// updateWith is update with expressions that need not be built.
func (s *Store) updateWith(ctx context.Context, k item, w written) (item, error) {
	return retryConflicts(ctx, func() (item, error) {
		out, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: k,
			ConditionExpression: &w.condition, UpdateExpression: &w.update,
			ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
			ReturnValues:                        types.ReturnValueAllNew,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		if err != nil {
			return nil, refused(err)
		}
		return out.Attributes, nil
	})
}

// put writes one item under a condition, with the same error as update.
func (s *Store) put(ctx context.Context, it item, cond expression.ConditionBuilder) error {
	expr, err := expression.NewBuilder().WithCondition(cond).Build()
	if err != nil {
		return err
	}
	_, err = retryConflicts(ctx, func() (struct{}, error) {
		_, err := s.api.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &s.table, Item: it,
			ConditionExpression:      expr.Condition(),
			ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return struct{}{}, refused(err)
	})
	return err
}

// refusedError is a failed condition with the item that it failed on; nil: there is none.
type refusedError struct{ item item }

func (*refusedError) Error() string { return "condition failed" }

func refused(err error) error {
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return &refusedError{failed.Item}
	}
	return err
}

// retryConflicts repeats a write that ran into a transaction on the same item, which the SDK does not
// do by itself, until the context ends.
func retryConflicts[T any](ctx context.Context, write func() (T, error)) (T, error) {
	return backoff.Retry(ctx, func() (T, error) {
		v, err := write()
		var conflict *types.TransactionConflictException
		if err != nil && !errors.As(err, &conflict) {
			return v, backoff.Permanent(err)
		}
		return v, err
	}, jittered()...)
}

// jittered waits between tries, at random, so that writers that collided once do not collide again in step. The longest
// pause is about what a dozen writers of one thread need to get through one after another.
func jittered() []backoff.RetryOption {
	policy := &backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.9, Multiplier: 1.5, MaxInterval: 150 * time.Millisecond,
	}
	return []backoff.RetryOption{backoff.WithBackOff(policy), backoff.WithMaxElapsedTime(0)}
}
