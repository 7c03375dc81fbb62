// Command seed is the usual first design in Go: it reads the conversation's whole state, appends the turn, writes the whole
// state back, and writes the result. Nothing is conditional, so that two tasks of one thread lose one another's turns, and
// a state ends at the 400 KB of an item. It is kinder than it has to be: the records of a batch run side by side, and the
// numbers in its sort keys have leading zeros, so that the newest state is found after turn 9 too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json"

	"agentworker/internal/awsclient"
)

type worker struct {
	client *dynamodb.Client
	table  string
}

func main() {
	cfg, err := awsclient.Load()
	if err != nil {
		fmt.Fprintln(os.Stderr, "seed:", err)
		os.Exit(1)
	}
	w := worker{dynamodb.NewFromConfig(cfg), os.Getenv("TABLE_NAME")}
	lambda.Start(w.handle)
}

func (w worker) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	errs := make([]error, len(event.Records))
	var all sync.WaitGroup
	for i := range event.Records {
		all.Go(func() { errs[i] = w.run(ctx, event.Records[i]) })
	}
	all.Wait()
	return events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}, errors.Join(errs...)
}

type state struct {
	Messages  []message  `dynamodbav:"messages"`
	Documents []document `dynamodbav:"retrieved_docs"`
}

type message struct {
	Role    string `dynamodbav:"role"`
	Content string `dynamodbav:"content"`
}

type document struct {
	ID    string  `dynamodbav:"doc_id"`
	Score float64 `dynamodbav:"score"`
}

type checkpoint struct {
	PK        string `dynamodbav:"pk"`
	SK        string `dynamodbav:"sk"`
	Type      string `dynamodbav:"type"`
	Data      state  `dynamodbav:"data"`
	UpdatedAt string `dynamodbav:"updated_at"`
}

type result struct {
	PK          string `dynamodbav:"pk"`
	SK          string `dynamodbav:"sk"`
	Type        string `dynamodbav:"type"`
	Data        string `dynamodbav:"data"`
	CompletedAt string `dynamodbav:"completed_at"`
}

func (w worker) run(ctx context.Context, m events.SQSMessage) error {
	var body struct {
		Thread   string `json:"thread_id"`
		Question string `json:"question"`
	}
	if err := json.Unmarshal([]byte(m.Body), &body); err != nil {
		return err
	}
	pk := "thread#" + body.Thread
	s, err := w.latest(ctx, pk)
	if err != nil {
		return err
	}
	s.Messages = append(s.Messages, message{"user", body.Question}, message{"assistant", answer})
	s.Documents = append(s.Documents, document{"doc-001", 0.92})
	now := time.Now().UTC().Format(time.RFC3339Nano)
	step := len(s.Messages) / 2
	if err := w.put(ctx, checkpoint{pk, fmt.Sprintf("checkpoint#%06d", step), "checkpoint", s, now}); err != nil {
		return err
	}
	return w.put(ctx, result{pk, "result", "result", answer, now})
}

func (w worker) latest(ctx context.Context, pk string) (state, error) {
	out, err := w.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &w.table, ScanIndexForward: aws.Bool(false), Limit: aws.Int32(1),
		KeyConditionExpression: aws.String("pk = :pk AND begins_with(sk, :sk)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":pk": &types.AttributeValueMemberS{Value: pk}, ":sk": &types.AttributeValueMemberS{Value: "checkpoint#"},
		},
	})
	if err != nil || len(out.Items) == 0 {
		return state{}, err
	}
	var c checkpoint
	err = attributevalue.UnmarshalMap(out.Items[0], &c)
	return c.Data, err
}

func (w worker) put(ctx context.Context, v any) error {
	it, err := attributevalue.MarshalMap(v)
	if err != nil {
		return err
	}
	_, err = w.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &w.table, Item: it})
	return err
}

// answer has the 300 bytes that all contestants' answers have, more or less.
var answer = strings.Repeat("A dead-letter queue holds what failed. ", 8)[:300]
