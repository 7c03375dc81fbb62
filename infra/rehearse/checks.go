package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	thread      = "rehearsal-thread"
	patience    = time.Minute
	poisonBody  = "hello, I am not JSON"
	queryPath   = "/agent/query"
	resultPath  = "/agent/result/" + thread
	ticketPath  = "/agent/tickets/TK-1"
	historyPath = "/agent/threads/unparsed/history"
)

func (d *deployed) authorization(ctx context.Context) error {
	status, text, err := d.request(ctx, http.MethodGet, "/healthz", nil, false)
	if err != nil {
		return err
	}
	if status != http.StatusForbidden {
		return fmt.Errorf("without a signature: got %d %s, want 403", status, text)
	}
	return d.call(ctx, http.MethodGet, "/healthz", nil, &struct{}{})
}

type task struct {
	ID     string `json:"task_id"`
	Status string `json:"status"`
	Error  *struct {
		Code string `json:"code"`
	} `json:"error"`
}

// question is promise one in small: accepted, run by the deployed worker, and to be seen in the deployed table.
func (d *deployed) question(ctx context.Context) error {
	var queued task
	question := map[string]any{"thread_id": thread, "question": "What is a dead-letter queue?"}
	if err := d.call(ctx, http.MethodPost, queryPath, question, &queued); err != nil {
		return err
	}
	if err := d.until(ctx, queued.ID, "succeeded"); err != nil {
		return err
	}
	if err := d.stillAnswered(ctx); err != nil {
		return err
	}
	found, err := d.items(ctx, "checkpoint#")
	if err != nil {
		return err
	}
	if found == 0 {
		return fmt.Errorf("table %s has no checkpoint of thread %s", d.outputs["TableName"], thread)
	}
	return nil
}

// stillAnswered fails when the thread's result is gone.
func (d *deployed) stillAnswered(ctx context.Context) error {
	var result struct {
		Answer string `json:"answer"`
	}
	if err := d.call(ctx, http.MethodGet, resultPath, nil, &result); err != nil {
		return err
	}
	if !strings.Contains(result.Answer, "dead-letter queue") {
		return fmt.Errorf("answer is %q", result.Answer)
	}
	return nil
}

func (d *deployed) items(ctx context.Context, prefix string) (int32, error) {
	out, err := d.table.Query(ctx, &dynamodb.QueryInput{
		TableName: aws.String(d.outputs["TableName"]), ConsistentRead: aws.Bool(true),
		KeyConditionExpression: aws.String("pk = :pk AND begins_with(sk, :sk)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":pk": &types.AttributeValueMemberS{Value: "thread#" + thread}, ":sk": &types.AttributeValueMemberS{Value: prefix},
		},
	})
	if err != nil {
		return 0, err
	}
	return out.Count, nil
}

func (d *deployed) until(ctx context.Context, id, status string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return poll(ctx, "task "+id+" has "+status, func() (bool, error) {
		var t task
		if err := d.call(ctx, http.MethodGet, "/agent/tasks/"+id, nil, &t); err != nil {
			return false, err
		}
		if t.Status == "failed" && status != "failed" {
			return false, fmt.Errorf("task %s failed: %+v", id, t.Error)
		}
		return t.Status == status, nil
	})
}

// tickets are ordered: submitted without waiting, each of these can only follow the one before.
func (d *deployed) tickets(ctx context.Context) error {
	var last task
	for _, status := range []string{"open", "in_progress", "resolved"} {
		if err := d.call(ctx, http.MethodPost, ticketPath, map[string]any{"status": status}, &last); err != nil {
			return err
		}
	}
	if err := d.until(ctx, last.ID, "succeeded"); err != nil {
		return err
	}
	var ticket struct {
		Status  string `json:"status"`
		Version int    `json:"version"`
	}
	if err := d.call(ctx, http.MethodGet, ticketPath, nil, &ticket); err != nil {
		return err
	}
	if ticket.Status != "resolved" || ticket.Version != 3 {
		return fmt.Errorf("ticket is %+v, want resolved, version 3", ticket)
	}
	return nil
}

// poison comes from somebody else's producer. Its reason is one GET away, and its message ends in the dead-letter queue.
func (d *deployed) poison(ctx context.Context) error {
	_, err := d.sqs.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String(d.outputs["QueueUrl"]), MessageBody: aws.String(poisonBody)})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = poll(waiting, "the poison message is in the dead-letter queue", func() (bool, error) {
		n, err := d.depth(ctx, "DeadLetterQueueUrl")
		return n == "1", err
	})
	if err != nil {
		return err
	}
	var history struct {
		Tasks []task `json:"tasks"`
	}
	if err := d.call(ctx, http.MethodGet, historyPath, nil, &history); err != nil {
		return err
	}
	if len(history.Tasks) != 1 || history.Tasks[0].Status != "failed" || history.Tasks[0].Error == nil {
		return fmt.Errorf("what is told of the message is %+v", history.Tasks)
	}
	for _, queue := range []string{"QueueUrl", "OrderedQueueUrl", "OrderedDeadLetterQueueUrl"} {
		if n, err := d.depth(ctx, queue); err != nil || n != "0" {
			return errors.Join(err, fmt.Errorf("%s holds %s messages, want none", queue, n))
		}
	}
	return nil
}

func (d *deployed) depth(ctx context.Context, queue string) (string, error) {
	name := sqstypes.QueueAttributeNameApproximateNumberOfMessages
	out, err := d.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(d.outputs[queue]), AttributeNames: []sqstypes.QueueAttributeName{name},
	})
	if err != nil {
		return "", err
	}
	return out.Attributes[string(name)], nil
}

// alarm invokes dlqalarm as the alarm on the dead-letter queue's depth would. Deviation: MiniStack's queues have no
// metrics, so that its alarms never go off by themselves.
func (d *deployed) alarm(ctx context.Context) error {
	name, err := d.function(ctx, "DLQAlarm")
	if err != nil {
		return err
	}
	alarm := stage + "-agent-tasks-dlq-depth"
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000-0700")
	event, err := json.Marshal(map[string]any{
		"source": "aws.cloudwatch", "alarmArn": "arn:aws:cloudwatch:" + region + ":" + account + ":alarm:" + alarm,
		"accountId": account, "region": region, "time": now,
		"alarmData": map[string]any{
			"alarmName":     alarm,
			"state":         map[string]any{"value": "ALARM", "reason": "rehearsed", "timestamp": now},
			"previousState": map[string]any{"value": "OK", "timestamp": now},
			"configuration": map[string]any{"metrics": []any{map[string]any{"id": "m1", "metricStat": map[string]any{"metric": map[string]any{
				"namespace": "AWS/SQS", "name": "ApproximateNumberOfMessagesVisible",
				"dimensions": map[string]any{"QueueName": path.Base(d.outputs["DeadLetterQueueUrl"])},
			}}}}},
		},
	})
	if err != nil {
		return err
	}
	out, err := d.fn.Invoke(ctx, &lambda.InvokeInput{FunctionName: &name, Payload: event})
	if err != nil {
		return err
	}
	var summary struct {
		Published bool `json:"published"`
		Queues    []struct {
			Alarm string `json:"alarm"`
			Seen  int    `json:"seen"`
		} `json:"queues"`
	}
	if err := json.Unmarshal(out.Payload, &summary); err != nil {
		return fmt.Errorf("%s: %w", out.Payload, err)
	}
	if out.FunctionError != nil || !summary.Published || len(summary.Queues) != 1 || summary.Queues[0].Seen != 1 || summary.Queues[0].Alarm != alarm {
		return fmt.Errorf("dlqalarm answers %s, want one message, seen for %s and published", out.Payload, alarm)
	}
	return nil
}

// function finds the name that CloudFormation has given to a function.
func (d *deployed) function(ctx context.Context, part string) (string, error) {
	names, err := d.functions(ctx)
	if err != nil {
		return "", err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.Contains(n, part) })
	if len(names) != 1 {
		return "", fmt.Errorf("functions with %s in their names: %q, want one", part, names)
	}
	return names[0], nil
}

func (d *deployed) functions(ctx context.Context) ([]string, error) {
	out, err := d.fn.ListFunctions(ctx, &lambda.ListFunctionsInput{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range out.Functions {
		if name := aws.ToString(f.FunctionName); strings.HasPrefix(name, "agentworker-"+stage+"-") {
			names = append(names, name)
		}
	}
	return names, nil
}

func (d *deployed) memory(ctx context.Context, want int32) error {
	name, err := d.function(ctx, "Worker")
	if err != nil {
		return err
	}
	out, err := d.fn.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		return err
	}
	if got := aws.ToInt32(out.MemorySize); got != want {
		return fmt.Errorf("the worker has %d MiB, want %d", got, want)
	}
	return nil
}

// remains is what has to be there after the stack has gone: the table with its items, the queues with their messages.
func (d *deployed) remains(ctx context.Context) error {
	functions, err := d.functions(ctx)
	if err != nil {
		return err
	}
	if len(functions) > 0 {
		return fmt.Errorf("functions are left: %q", functions)
	}
	if n, err := d.items(ctx, "checkpoint#"); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("the table holds %d checkpoints of thread %s", n, thread))
	}
	if n, err := d.depth(ctx, "DeadLetterQueueUrl"); err != nil || n != "1" {
		return errors.Join(err, fmt.Errorf("the dead-letter queue holds %q messages, want 1", n))
	}
	for _, queue := range []string{"QueueUrl", "OrderedQueueUrl", "OrderedDeadLetterQueueUrl"} {
		if _, err := d.depth(ctx, queue); err != nil {
			return err
		}
	}
	return nil
}
