package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/task"
)

// EraseAPI is what an [Eraser] calls of the DynamoDB client. The functions have no use for it, nor the permissions.
type EraseAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
}

// IdempotencyKeyLife is how long an idempotency key is kept. It holds hashes and a task's id, and cannot be found from
// the thread.
const IdempotencyKeyLife = keyRetention

// Settling is for how long after its failure a task's message may still be on its way into the dead-letter queue: with
// its record gone it would run as a new one. Usually that is seconds; it is longer when each of four more deliveries
// has to wait for the visibility timeout.
const Settling = 30 * time.Minute

// ErrUnfinished says that a task of the thread is queued, running or retrying, or that it has failed within [Settling].
var ErrUnfinished = errors.New("the thread has a task that has not ended")

// Holdings is what the table holds about a thread, also of what has expired and is not deleted yet, in items.
type Holdings struct {
	Checkpoints int `json:"checkpoints"`
	DataParts   int `json:"data_parts"` // of checkpoints whose data is split
	Tasks       int `json:"tasks"`
	Results     int `json:"results"`
	Tickets     int `json:"tickets"` // 1 for the thread of a ticket that has a state

	Unfinished []task.ID `json:"unfinished"` // tasks that are queued, running or retrying, or have failed within [Settling]
	Failed     int       `json:"failed"`     // tasks whose message may lie in a dead-letter queue
}

// Items is how many there are in all.
func (h Holdings) Items() int { return h.Checkpoints + h.DataParts + h.Tasks + h.Results + h.Tickets }

// Eraser deletes threads. It is safe for concurrent use.
type Eraser struct {
	api   EraseAPI
	table string
	now   func() time.Time
}

// NewEraser makes an eraser over an existing table. Of the options it takes the clock.
func NewEraser(api EraseAPI, table string, opts Options) *Eraser {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Eraser{api, table, opts.Now}
}

// Look counts what [Eraser.Forget] would delete.
func (e *Eraser) Look(ctx context.Context, thread string) (Holdings, error) {
	l, err := e.list(ctx, thread)
	return l.Holdings, err
}

// Forget deletes everything about a thread: the tasks' records, checkpoints with their data, the result, and the ticket
// when the thread is a ticket's. It returns what it has deleted, also when it fails; what it could not do, calling it
// again does.
//
// Unless force is set it gives [ErrUnfinished] while a task has not ended. Nothing that comes to the thread in the
// meantime is deleted: what is there at the beginning goes, and of that no record, result or ticket which has changed
// since. deleted, if it is not nil, is told after every step how many items are gone; it is not called by two
// goroutines at once.
func (e *Eraser) Forget(ctx context.Context, thread string, force bool, deleted func(items int)) (Holdings, error) {
	l, err := e.list(ctx, thread)
	if err != nil {
		return Holdings{}, err
	}
	if len(l.Unfinished) > 0 && !force {
		return Holdings{}, fmt.Errorf("task %s: %w", l.Unfinished[0], ErrUnfinished)
	}
	r := &removal{eraser: e, tell: deleted}
	// Records first: that one of them cannot go stops all. Checkpoints before the parts of their data, and lowest
	// number first, so that whatever is left after a kill can be read, and a task that comes now takes none of the
	// numbers that are being deleted. The newest one holds the numbers: a task that comes once it is gone begins with
	// 1, and what it writes under an old number is not taken for the old, not even when forced.
	err = r.each(ctx, l.records, force, &r.gone.Tasks)
	if err == nil {
		err = r.each(ctx, l.results, force, &r.gone.Results)
	}
	if err == nil {
		err = r.batches(ctx, l.checkpoints, &r.gone.Checkpoints)
	}
	if err == nil {
		err = r.each(ctx, l.newest, false, &r.gone.Checkpoints)
	}
	if err == nil {
		err = r.each(ctx, l.parts, false, &r.gone.DataParts)
	}
	if err == nil {
		err = r.each(ctx, l.tickets, force, &r.gone.Tickets)
	}
	if err != nil {
		return r.gone, fmt.Errorf("delete thread %s, of which %d items are gone: %w", thread, r.gone.Items(), err)
	}
	r.gone.Failed = l.Failed
	return r.gone, nil
}

// listing is the keys of a thread's items, in the table's order; those of single ones with what must not have changed.
type listing struct {
	Holdings
	checkpoints                              []item // but for the newest
	newest, parts, records, results, tickets []unchanged
}

// unchanged is an item's key and an attribute that every change of the item changes; that of a part, which never changes,
// is another for another task's.
type unchanged struct {
	key       item
	attribute string
	value     types.AttributeValue // nil: the item has none
}

func (e *Eraser) list(ctx context.Context, thread string) (l listing, err error) {
	expr, err := expression.NewBuilder().
		WithKeyCondition(expression.Key("pk").Equal(expression.Value(threadPK(thread)))).
		WithProjection(expression.NamesList(expression.Name("pk"), expression.Name("sk"), expression.Name("status"),
			expression.Name("task_id"), expression.Name("updated_at"), expression.Name("n"), expression.Name("expires_at"))).Build()
	if err != nil {
		return l, err
	}
	pages := dynamodb.NewQueryPaginator(e.api, &dynamodb.QueryInput{
		TableName: &e.table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression: expr.KeyCondition(), ProjectionExpression: expr.Projection(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return l, fmt.Errorf("list the items of thread %s: %w", thread, err)
		}
		for _, it := range page.Items {
			if err := l.add(it, e.now()); err != nil {
				return l, fmt.Errorf("list the items of thread %s: %w", thread, err)
			}
		}
	}
	if id, ok := task.TicketOf(thread); ok {
		err = e.listTicket(ctx, id, &l)
	}
	return l, err
}

func (l *listing) add(it item, now time.Time) error {
	var at struct {
		PK        string `dynamodbav:"pk"`
		SK        string `dynamodbav:"sk"`
		Status    string `dynamodbav:"status"`
		TaskID    string `dynamodbav:"task_id"`
		UpdatedAt string `dynamodbav:"updated_at"`
	}
	if err := attributevalue.UnmarshalMap(it, &at); err != nil {
		return err
	}
	k := key(at.PK, at.SK)
	switch {
	case strings.HasPrefix(at.SK, checkpointPrefix):
		for _, older := range l.newest {
			l.checkpoints = append(l.checkpoints, older.key)
		}
		l.newest = []unchanged{{k, "updated_at", it["updated_at"]}}
		l.Checkpoints++
	case strings.HasPrefix(at.SK, dataPrefix):
		l.parts = append(l.parts, unchanged{k, "expires_at", it["expires_at"]})
		l.DataParts++
	case strings.HasPrefix(at.SK, historyPrefix):
		l.records = append(l.records, unchanged{k, "updated_at", it["updated_at"]})
		l.Tasks++
		failed := Status(at.Status) == Failed
		if failed {
			l.Failed++
		}
		if Status(at.Status) != Succeeded && (!failed || now.Sub(unstamp(at.UpdatedAt)) < Settling) {
			l.Unfinished = append(l.Unfinished, task.ID(at.TaskID))
		}
	case at.SK == resultKey:
		l.results = append(l.results, unchanged{k, "n", it["n"]})
		l.Results++
	default:
		return fmt.Errorf("the item %s is of no kind that is known", at.SK)
	}
	return nil
}

func (e *Eraser) listTicket(ctx context.Context, id string, l *listing) error {
	k := key(ticketPK(id), ticketKey)
	out, err := e.api.GetItem(ctx, &dynamodb.GetItemInput{TableName: &e.table, Key: k, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return fmt.Errorf("look for ticket %s: %w", id, err)
	}
	if out.Item != nil {
		l.tickets = append(l.tickets, unchanged{k, "version", out.Item["version"]})
		l.Tickets = 1
	}
	return nil
}

// removal is a deletion under way.
type removal struct {
	eraser *Eraser
	tell   func(int)

	mu   sync.Mutex
	gone Holdings
}

func (r *removal) count(kind *int, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*kind += n
	if r.tell != nil {
		r.tell(r.gone.Items())
	}
}

// deletesAtOnce is how many single items are being deleted at a time.
const deletesAtOnce = 16

// each deletes items one by one, each unless it has changed, or in any case when forced.
func (r *removal) each(ctx context.Context, items []unchanged, force bool, kind *int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(deletesAtOnce)
	for _, it := range items {
		g.Go(func() error {
			err := patiently(ctx, func() error { return r.eraser.delete(ctx, it, force) })
			if err == nil {
				r.count(kind, 1)
			}
			return err
		})
	}
	return g.Wait()
}

func (e *Eraser) delete(ctx context.Context, it unchanged, force bool) error {
	in := &dynamodb.DeleteItemInput{TableName: &e.table, Key: it.key}
	if !force {
		as := expression.Name(it.attribute).AttributeNotExists()
		if it.value != nil {
			// One that is gone is fine: so was our own try whose answer was lost.
			as = as.Or(expression.Name(it.attribute).Equal(expression.Value(it.value)))
		}
		expr, err := expression.NewBuilder().WithCondition(as).Build()
		if err != nil {
			return err
		}
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = expr.Condition(), expr.Names(), expr.Values()
	}
	_, err := e.api.DeleteItem(ctx, in)
	var changed *types.ConditionalCheckFailedException
	if errors.As(err, &changed) {
		return fmt.Errorf("it has changed since it was looked at: %w", ErrUnfinished)
	}
	return err
}

// batchSize is the most that one call can write. Source: Amazon DynamoDB API Reference, "BatchWriteItem".
const batchSize = 25

// batches deletes items in their order.
func (r *removal) batches(ctx context.Context, keys []item, kind *int) error {
	for len(keys) > 0 {
		n := min(len(keys), batchSize)
		if err := r.batch(ctx, keys[:n], kind); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// batch sends again what DynamoDB leaves over when it is asked for too much.
func (r *removal) batch(ctx context.Context, keys []item, kind *int) error {
	var left []types.WriteRequest
	for _, k := range keys {
		left = append(left, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: k}})
	}
	table := r.eraser.table
	return patiently(ctx, func() error {
		out, err := r.eraser.api.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: left}})
		if err != nil {
			return err
		}
		rest := out.UnprocessedItems[table]
		r.count(kind, len(left)-len(rest))
		if left = rest; len(left) > 0 {
			return fmt.Errorf("%d items: %w", len(left), errUnprocessed)
		}
		return nil
	})
}

var errUnprocessed = errors.New("not processed")

// patiently repeats a write that DynamoDB does not take for the moment, with pauses that grow, until the context ends. What the
// SDK repeats of that ends too soon: a thread lies in one partition, which deletes no more than 1,000 KB of large data a second.
// Source: Amazon DynamoDB Developer Guide, "Best practices for designing and using partition keys effectively".
func patiently(ctx context.Context, write func() error) error {
	pauses := &backoff.ExponentialBackOff{InitialInterval: 20 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 5 * time.Second}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if err := ctx.Err(); err != nil { // also when another write has failed
			return struct{}{}, backoff.Permanent(err)
		}
		err := write()
		if err != nil && !passes(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	return err
}

func passes(err error) bool {
	var conflict *types.TransactionConflictException
	return errors.As(err, &conflict) || errors.Is(err, errUnprocessed) ||
		retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary
}
