package contest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"agentworker/internal/emulator/dynamodb/meter"
)

type item = map[string]types.AttributeValue

// Table is a DynamoDB that contestants are measured against, with a meter in front. Its tables are empty at first and live
// until Drop.
type Table struct {
	Endpoint string
	Meter    *meter.Meter

	client *dynamodb.Client
	http   *http.Client
}

// OpenTable opens a meter in front of the DynamoDB at endpoint. ctx bounds the opening only.
func OpenTable(ctx context.Context, endpoint string) (*Table, error) {
	m, err := meter.Listen(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	t := &Table{Endpoint: endpoint, Meter: m, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	t.client = dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: t.http,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	return t, nil
}

// Close ends the meter.
func (t *Table) Close() error {
	t.http.CloseIdleConnections()
	return t.Meter.Close()
}

// New makes a table and returns its name.
func (t *Table) New(ctx context.Context) (string, error) {
	name := "bench-" + uuid.NewString()
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	text := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	_, err := t.client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{key("pk", types.KeyTypeHash), key("sk", types.KeyTypeRange)},
		AttributeDefinitions: []types.AttributeDefinition{text("pk"), text("sk")},
	})
	if err != nil {
		return "", fmt.Errorf("create table: %w", err)
	}
	waiter := dynamodb.NewTableExistsWaiter(t.client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 10*time.Millisecond, time.Second
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, time.Minute); err != nil {
		return "", fmt.Errorf("wait for table: %w", err)
	}
	return name, nil
}

// Drop deletes a table.
func (t *Table) Drop(ctx context.Context, name string) error {
	if _, err := t.client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
		return fmt.Errorf("delete table: %w", err)
	}
	return nil
}

// ErrTooLarge is the answer to a thread whose state does not fit an item.
var ErrTooLarge = errors.New("the thread's state does not fit into an item of 400 KB")

// Grow makes a thread with one turn into one with as many turns as it is told, by writing straight into the table what
// the contestant would have left there. The error may be [ErrTooLarge].
func (t *Table) Grow(ctx context.Context, c Contestant, table, thread string, turns int) error {
	out, err := t.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(false), Limit: aws.Int32(1),
		KeyConditionExpression: aws.String("pk = :pk AND begins_with(sk, :sk)"),
		ExpressionAttributeValues: item{
			":pk": &types.AttributeValueMemberS{Value: "thread#" + thread}, ":sk": &types.AttributeValueMemberS{Value: "checkpoint#"},
		},
	})
	if err != nil {
		return fmt.Errorf("read the first turn: %w", err)
	}
	if len(out.Items) != 1 {
		return fmt.Errorf("thread %s of %s has no first turn", thread, c.Name)
	}
	for chunk := range slices.Chunk(c.state(out.Items[0], turns), 25) { // the most that a BatchWriteItem takes
		if err := t.put(ctx, table, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) put(ctx context.Context, table string, items []item) error {
	var writes []types.WriteRequest
	for _, it := range items {
		writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
	}
	out, err := t.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: writes}})
	var invalid interface{ ErrorCode() string }
	switch {
	case errors.As(err, &invalid) && invalid.ErrorCode() == "ValidationException":
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("write items: %w", err)
	case len(out.UnprocessedItems) > 0:
		return errors.New("write items: some were not processed")
	}
	return nil
}

// checkpoints is one item a turn, numbered.
func checkpoints(first item, turns int) []item {
	var items []item
	for n := 2; n <= turns; n++ {
		it := item{}
		for name, value := range first {
			it[name] = value
		}
		it["sk"] = &types.AttributeValueMemberS{Value: fmt.Sprintf("checkpoint#%020d", n)}
		items = append(items, it)
	}
	return items
}

// wholeState is one item with everything that was ever said.
func wholeState(first item, turns int) []item {
	said, _ := first["data"].(*types.AttributeValueMemberM)
	data := item{}
	for name, value := range said.Value {
		list, _ := value.(*types.AttributeValueMemberL)
		data[name] = &types.AttributeValueMemberL{Value: slices.Repeat(list.Value, turns)}
	}
	return []item{{
		"pk": first["pk"], "sk": &types.AttributeValueMemberS{Value: fmt.Sprintf("checkpoint#%06d", turns)},
		"type": first["type"], "updated_at": first["updated_at"], "data": &types.AttributeValueMemberM{Value: data},
	}}
}
