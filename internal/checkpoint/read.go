package checkpoint

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"agentworker/internal/task"
)

// Record reads a task's record, or gives [ErrNotFound].
func (s *Store) Record(ctx context.Context, id task.ID) (Record, error) {
	it, err := s.get(ctx, threadPK(id.Thread()), historySK(id))
	if err != nil {
		return Record{}, err
	}
	return record(it)
}

// Checkpoint reads checkpoint n of a thread, or gives [ErrNotFound].
func (s *Store) Checkpoint(ctx context.Context, thread string, n uint64) (Checkpoint, error) {
	it, err := s.get(ctx, threadPK(thread), checkpointSK(n))
	if err != nil {
		return Checkpoint{}, err
	}
	return s.checkpoint(ctx, thread, it)
}

// Result reads a thread's newest result, or gives [ErrNotFound].
func (s *Store) Result(ctx context.Context, thread string) (Result, error) {
	it, err := s.get(ctx, threadPK(thread), resultKey)
	if err != nil {
		return Result{}, err
	}
	var r resultItem
	if err := attributevalue.UnmarshalMap(it, &r); err != nil {
		return Result{}, fmt.Errorf("decode result of thread %s: %w", thread, err)
	}
	res := Result{Thread: thread, TaskID: task.ID(r.TaskID), N: r.N, CompletedAt: unstamp(r.CompletedAt)}
	if it["data"] == nil {
		c, err := s.Checkpoint(ctx, thread, r.N)
		res.Data = c.Data
		return res, err
	}
	res.Data, err = s.unpack(ctx, thread, r.N, it["data"], 0)
	return res, err
}

// Latest reads up to limit of a thread's checkpoints, newest first, beginning with number upTo (0: the newest). It is
// one request, whatever the thread's length, plus one for each checkpoint whose data is split. A
// page ends at 1 MB, so that fewer may come than there are. Of an expired one nothing but its number is given.
func (s *Store) Latest(ctx context.Context, thread string, upTo uint64, limit int) ([]Checkpoint, error) {
	items, err := s.newest(ctx, thread, upTo, limit)
	if err != nil {
		return nil, err
	}
	checkpoints := make([]Checkpoint, 0, len(items))
	for i, it := range items {
		if i > 0 && s.expired(it) {
			break // what is older has expired too
		}
		read := s.checkpoint
		if s.expired(it) {
			read = onlyNumber
		}
		c, err := read(ctx, thread, it)
		if err != nil {
			return nil, err
		}
		checkpoints = append(checkpoints, c)
	}
	return checkpoints, nil
}

// newestN is the number of a thread's newest checkpoint; 0: it has none. Expired ones count.
func (s *Store) newestN(ctx context.Context, thread string) (uint64, error) {
	items, err := s.newest(ctx, thread, 0, 1)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	return numberOf(items[0])
}

func (s *Store) newest(ctx context.Context, thread string, upTo uint64, limit int) ([]item, error) {
	condition, values := "pk = :pk AND begins_with(sk, :prefix)", item{":pk": text(threadPK(thread)), ":prefix": text(checkpointPrefix)}
	if upTo > 0 {
		condition = "pk = :pk AND sk BETWEEN :first AND :last"
		values = item{":pk": text(threadPK(thread)), ":first": text(checkpointSK(0)), ":last": text(checkpointSK(upTo))}
	}
	out, err := s.api.Query(ctx, &dynamodb.QueryInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(false),
		Limit:                  aws.Int32(int32(min(limit, math.MaxInt32))), //nolint:gosec // bounded by min
		KeyConditionExpression: &condition, ExpressionAttributeValues: values,
	})
	if err != nil {
		return nil, fmt.Errorf("read latest checkpoints of thread %s: %w", thread, err)
	}
	return out.Items, nil
}

func (s *Store) checkpoint(ctx context.Context, thread string, it item) (Checkpoint, error) {
	n, err := numberOf(it)
	if err != nil {
		return Checkpoint{}, err
	}
	var c checkpointItem
	if err := attributevalue.UnmarshalMap(it, &c); err != nil {
		return Checkpoint{}, fmt.Errorf("decode checkpoint %d of thread %s: %w", n, thread, err)
	}
	data, err := s.unpack(ctx, thread, n, it["data"], c.Parts)
	if err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{
		Thread: thread, N: n, TaskID: task.ID(c.TaskID), Task: c.Task, Step: c.Step, Data: data, Last: c.Last,
		Attempt: c.Attempt, Duration: time.Duration(c.Duration) * time.Millisecond,
		Tokens: task.Tokens{Input: c.TokensIn, Output: c.TokensOut}, UpdatedAt: unstamp(c.UpdatedAt),
	}, nil
}

// onlyNumber is a checkpoint that has expired. Its number still counts; parts of its data may be deleted before itself.
func onlyNumber(_ context.Context, thread string, it item) (Checkpoint, error) {
	n, err := numberOf(it)
	return Checkpoint{Thread: thread, N: n}, err
}

func numberOf(it item) (uint64, error) {
	sk, ok := it["sk"].(*types.AttributeValueMemberS)
	if !ok {
		return 0, fmt.Errorf("a checkpoint has no sort key")
	}
	return checkpointNumber(sk.Value)
}

// History reads up to limit (1 or more) task records of a thread, oldest first, beginning after the task whose ULID
// is given ("": the first). next is where to go on, "" at the end.
func (s *Store) History(ctx context.Context, thread, after string, limit int) (records []Record, next string, err error) {
	from := historyPrefix + after
	if after != "" {
		from += "!" // sorts behind the ULID itself and before any other
	}
	for {
		items, last, err := s.historyPage(ctx, thread, from, historyPrefix+"~", "", limit-len(records))
		if err != nil {
			return nil, "", err
		}
		for _, it := range items {
			r, err := record(it)
			if err != nil {
				return nil, "", err
			}
			records = append(records, r)
		}
		if last == "" {
			return records, "", nil
		}
		next = strings.TrimPrefix(last, historyPrefix)
		if len(records) >= limit {
			return records, next, nil
		}
		from = last + "!"
	}
}

// FindByMessage looks for the record of a message that was sent between two times, or gives [ErrNotFound]. It is
// for messages without a task id of their own whose send time is no longer known, as
// happens when SQS moves them to a FIFO dead-letter queue.
func (s *Store) FindByMessage(ctx context.Context, thread, messageID string, from, to time.Time) (Record, error) {
	first, last := historyPrefix+ulidAt(from), historyPrefix+ulidAt(to.Add(time.Millisecond))
	for {
		items, next, err := s.historyPage(ctx, thread, first, last, messageID, math.MaxInt32)
		if err != nil {
			return Record{}, err
		}
		if len(items) > 0 {
			return record(items[0])
		}
		if next == "" {
			return Record{}, fmt.Errorf("task of message %s: %w", messageID, ErrNotFound)
		}
		first = next + "!"
	}
}

// historyPage reads one page of live task records between two sort keys; last is the sort key to go on after,
// "" at the end.
func (s *Store) historyPage(ctx context.Context, thread, from, to, messageID string, limit int) (live []item, last string, err error) {
	b := expression.NewBuilder().WithKeyCondition(
		expression.Key("pk").Equal(expression.Value(threadPK(thread))).
			And(expression.Key("sk").Between(expression.Value(from), expression.Value(to))))
	if messageID != "" {
		b = b.WithFilter(expression.Name("message_id").Equal(expression.Value(messageID)))
	}
	expr, err := b.Build()
	if err != nil {
		return nil, "", err
	}
	out, err := s.api.Query(ctx, &dynamodb.QueryInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true),
		Limit:                  aws.Int32(int32(min(limit, math.MaxInt32))), //nolint:gosec // bounded by min
		KeyConditionExpression: expr.KeyCondition(), FilterExpression: expr.Filter(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
	})
	if err != nil {
		return nil, "", fmt.Errorf("read history of thread %s: %w", thread, err)
	}
	for _, it := range out.Items {
		if !s.expired(it) {
			live = append(live, it)
		}
	}
	if sk, ok := out.LastEvaluatedKey["sk"].(*types.AttributeValueMemberS); ok {
		last = sk.Value
	}
	return live, last, nil
}

// Ticket reads a ticket, or gives [ErrNotFound]. Tickets do not expire.
func (s *Store) Ticket(ctx context.Context, id string) (task.Ticket, error) {
	it, err := s.get(ctx, ticketPK(id), ticketKey)
	if err != nil {
		return task.Ticket{}, err
	}
	var t ticketItem
	if err := attributevalue.UnmarshalMap(it, &t); err != nil {
		return task.Ticket{}, fmt.Errorf("decode ticket %s: %w", id, err)
	}
	return task.Ticket{ID: id, Status: t.Status, Version: t.Version, UpdatedAt: unstamp(t.UpdatedAt)}, nil
}
