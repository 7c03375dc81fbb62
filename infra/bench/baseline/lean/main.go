// Command lean is the least that a worker can do which sends the requests that ours sends: it claims the task and reads
// the thread side by side, and commits the same three items in one transaction. It keeps no promise: it retries nothing,
// decides nothing, logs nothing, and its answer is fixed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
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
		fmt.Fprintln(os.Stderr, "lean:", err)
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

// job is one message's task, and what its requests have in common.
type job struct {
	worker   `json:"-"`
	TaskID   string `json:"task_id"`
	Question string `json:"question"`

	message    string
	pk         types.AttributeValue
	history    types.AttributeValue // sort key of the task's record
	now        types.AttributeValue
	expiresAt  types.AttributeValue
	checkpoint uint64
}

func (w worker) run(ctx context.Context, m events.SQSMessage) error {
	j := job{worker: w, message: m.MessageId}
	if err := json.Unmarshal([]byte(m.Body), &j); err != nil {
		return err
	}
	thread, ulid, _ := strings.Cut(j.TaskID, ".")
	at := time.Now().UTC()
	j.pk, j.history = text("thread#"+thread), text("history#"+ulid)
	j.now, j.expiresAt = text(at.Format("2006-01-02T15:04:05.000Z")), number(at.Add(90*24*time.Hour).Unix())

	var claimErr, readErr error
	var both sync.WaitGroup
	both.Go(func() { claimErr = j.claim(ctx) })
	both.Go(func() { readErr = j.read(ctx) })
	both.Wait()
	if claimErr != nil {
		return claimErr
	}
	if readErr != nil {
		return readErr
	}
	return j.commit(ctx)
}

func (j *job) claim(ctx context.Context) error {
	attempt := &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberM{Value: item{
		"started_at": j.now, "message_id": text(j.message),
	}}}}
	_, err := j.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &j.table, Key: item{"pk": j.pk, "sk": j.history}, ReturnValues: types.ReturnValueAllNew,
		ConditionExpression: aws.String("attribute_not_exists(pk) OR #s IN (:queued, :retrying) OR (#s = :running AND lease_until <= :now)"),
		UpdateExpression: aws.String("SET #s = :running, attempts = list_append(if_not_exists(attempts, :none), :attempt), " +
			"lease_owner = :owner, lease_until = :now, message_id = :message, updated_at = :now, expires_at = :expires, #t = :history, " +
			"task_id = :task, task = :rag, submitted_at = if_not_exists(submitted_at, :now) ADD fence :one REMOVE next_retry_at"),
		ExpressionAttributeNames: map[string]string{"#s": "status", "#t": "type"},
		ExpressionAttributeValues: item{
			":queued": text("queued"), ":retrying": text("retrying"), ":running": text("running"), ":now": j.now,
			":none": &types.AttributeValueMemberL{}, ":attempt": attempt, ":owner": text(j.message), ":message": text(j.message),
			":expires": j.expiresAt, ":history": text("history"), ":task": text(j.TaskID), ":rag": text("rag_query"), ":one": number(1),
		},
	})
	return err
}

func (j *job) read(ctx context.Context) error {
	out, err := j.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &j.table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(false), Limit: aws.Int32(20),
		KeyConditionExpression:    aws.String("pk = :pk AND begins_with(sk, :sk)"),
		ExpressionAttributeValues: item{":pk": j.pk, ":sk": text("checkpoint#")},
	})
	if err != nil || len(out.Items) == 0 {
		return err
	}
	sk, _ := out.Items[0]["sk"].(*types.AttributeValueMemberS)
	j.checkpoint, err = strconv.ParseUint(strings.TrimPrefix(sk.Value, "checkpoint#"), 10, 64)
	return err
}

func (j *job) commit(ctx context.Context) error {
	n := number(int64(j.checkpoint + 1)) //nolint:gosec // a count
	data, err := json.Marshal(struct {
		Question  string   `json:"question"`
		Answer    string   `json:"answer"`
		Citations []string `json:"citations"`
		Model     string   `json:"model"`
	}{j.Question, answer, []string{}, "fixed"})
	if err != nil {
		return err
	}
	unused, record := aws.String("attribute_not_exists(pk)"), text("generate")
	step := &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberM{Value: item{"name": record, "n": n}}}}
	_, err = j.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Update: &types.Update{
			TableName: &j.table, Key: item{"pk": j.pk, "sk": j.history},
			ConditionExpression: aws.String("#s = :running AND fence = :one AND attribute_not_exists(steps)"),
			UpdateExpression: aws.String("SET #s = :succeeded, steps = list_append(if_not_exists(steps, :none), :step), step = :name, result_n = :n, " +
				"updated_at = :now, attempts[0].ended_at = :now, attempts[0].step = :name REMOVE lease_owner, lease_until, #e"),
			ExpressionAttributeNames: map[string]string{"#s": "status", "#e": "error"},
			ExpressionAttributeValues: item{
				":running": text("running"), ":succeeded": text("succeeded"), ":one": number(1), ":none": &types.AttributeValueMemberL{},
				":step": step, ":name": record, ":n": n, ":now": j.now,
			},
		}},
		{Put: &types.Put{TableName: &j.table, ConditionExpression: unused, Item: item{
			"pk": j.pk, "sk": text(fmt.Sprintf("checkpoint#%020d", j.checkpoint+1)), "type": text("checkpoint"), "task_id": text(j.TaskID),
			"task": text("rag_query"), "step": record, "last": &types.AttributeValueMemberBOOL{Value: true}, "attempt": number(1),
			"duration_ms": number(0), "updated_at": j.now, "expires_at": j.expiresAt, "data": text(string(data)),
		}}},
		{Put: &types.Put{
			TableName: &j.table, ConditionExpression: aws.String("attribute_not_exists(pk) OR n < :n OR expires_at <= :expired"),
			ExpressionAttributeValues: item{":n": n, ":expired": number(time.Now().Unix())},
			Item: item{
				"pk": j.pk, "sk": text("result"), "type": text("result"), "task_id": text(j.TaskID), "n": n, "completed_at": j.now,
				"expires_at": j.expiresAt, "data": text(string(data)),
			},
		}},
	}})
	return err
}

// answer has the 300 bytes that all contestants' answers have, more or less.
var answer = strings.Repeat("A dead-letter queue holds what failed. ", 8)[:300]

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
