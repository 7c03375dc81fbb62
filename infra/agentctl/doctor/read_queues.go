package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/infra/agentctl/deployment"
)

func (r *reader) readQueues(ctx context.Context) error {
	for _, p := range []struct {
		urls deployment.Queue
		into *Pair
	}{{r.deployment.Tasks, &r.state.Tasks}, {r.deployment.Ordered, &r.state.Ordered}} {
		var err error
		if p.into.Queue, err = r.readQueue(ctx, p.urls.URL); err != nil {
			return err
		}
		if p.into.DeadLetter, err = r.readQueue(ctx, p.urls.DeadLetterURL); err != nil {
			return err
		}
		if p.into.Queue == nil {
			continue
		}
		if err := r.readMappings(ctx, p.into); err != nil {
			return err
		}
		if err := r.readAge(ctx, p.into.Queue); err != nil {
			return err
		}
	}
	return nil
}

// queueNameOf is the last part of a queue's URL.
func queueNameOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }

func (r *reader) readQueue(ctx context.Context, url string) (*Queue, error) {
	name := queueNameOf(url)
	out, err := r.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
	})
	if ok, err := r.judge(err, "sqs:GetQueueAttributes", name, resource{kind: queueType, physicalID: name}); !ok {
		return nil, err
	}
	q := &Queue{Name: name, URL: url}
	if err := q.read(out.Attributes); err != nil {
		return nil, fmt.Errorf("attributes of %s: %w", name, err)
	}
	return q, nil
}

// read takes the attributes as SQS gives them.
// Source: Amazon SQS API Reference, "GetQueueAttributes".
func (q *Queue) read(attributes map[string]string) (err error) {
	number := func(name string) int {
		n, bad := strconv.Atoi(attributes[name])
		if bad != nil && err == nil {
			err = fmt.Errorf("%s: %w", name, bad)
		}
		return n
	}
	seconds := func(name string) time.Duration { return time.Duration(number(name)) * time.Second }
	q.ARN, q.FIFO = attributes["QueueArn"], attributes["FifoQueue"] == "true"
	q.Visibility, q.Retention, q.Wait = seconds("VisibilityTimeout"), seconds("MessageRetentionPeriod"), seconds("ReceiveMessageWaitTimeSeconds")
	q.Messages = number("ApproximateNumberOfMessages") + number("ApproximateNumberOfMessagesNotVisible") + number("ApproximateNumberOfMessagesDelayed")
	q.ManagedEncryption, q.KeyEncrypts = attributes["SqsManagedSseEnabled"] == "true", attributes["KmsMasterKeyId"] != ""
	if err != nil {
		return err
	}
	if q.Policy, err = ParsePolicy(attributes["Policy"]); err != nil {
		return fmt.Errorf("Policy: %w", err)
	}
	return q.readRedrive(attributes["RedrivePolicy"], attributes["RedriveAllowPolicy"])
}

func (q *Queue) readRedrive(redrive, allow string) error {
	if redrive != "" {
		var p struct {
			DeadLetterTargetARN string         `json:"deadLetterTargetArn"`
			MaxReceiveCount     jsontext.Value `json:"maxReceiveCount"` // a number, or one in quotes
		}
		if err := json.Unmarshal([]byte(redrive), &p); err != nil {
			return fmt.Errorf("RedrivePolicy: %w", err)
		}
		count, err := strconv.Atoi(strings.Trim(string(p.MaxReceiveCount), `"`))
		if err != nil {
			return fmt.Errorf("RedrivePolicy: %w", err)
		}
		q.Redrive = &RedrivePolicy{p.DeadLetterTargetARN, count}
	}
	if allow != "" {
		var p struct {
			RedrivePermission string   `json:"redrivePermission"`
			SourceQueueARNs   []string `json:"sourceQueueArns"`
		}
		if err := json.Unmarshal([]byte(allow), &p); err != nil {
			return fmt.Errorf("RedriveAllowPolicy: %w", err)
		}
		q.Allow = &RedriveAllowPolicy{p.RedrivePermission, p.SourceQueueARNs}
	}
	return nil
}

// readMappings asks for every mapping of the queue, whosoever it is.
func (r *reader) readMappings(ctx context.Context, p *Pair) error {
	pages := lambda.NewListEventSourceMappingsPaginator(r.lambda, &lambda.ListEventSourceMappingsInput{EventSourceArn: &p.Queue.ARN})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if ok, err := r.judge(err, "lambda:ListEventSourceMappings", p.Queue.Name, resource{}); !ok {
			return err
		}
		for _, m := range page.EventSourceMappings {
			p.Mappings = append(p.Mappings, eventSource(m))
		}
	}
	p.MappingsRead = true
	return nil
}

func eventSource(m types.EventSourceMappingConfiguration) EventSource {
	s := EventSource{
		UUID: aws.ToString(m.UUID), FunctionARN: aws.ToString(m.FunctionArn), State: aws.ToString(m.State), BatchSize: int(aws.ToInt32(m.BatchSize)),
		Window:  time.Duration(aws.ToInt32(m.MaximumBatchingWindowInSeconds)) * time.Second,
		Filters: m.FilterCriteria != nil && len(m.FilterCriteria.Filters) > 0,
	}
	if m.ScalingConfig != nil {
		s.MaximumConcurrency = int(aws.ToInt32(m.ScalingConfig.MaximumConcurrency))
	}
	if c := m.ProvisionedPollerConfig; c != nil {
		s.MinimumPollers, s.MaximumPollers = int(aws.ToInt32(c.MinimumPollers)), int(aws.ToInt32(c.MaximumPollers))
	}
	for _, kind := range m.FunctionResponseTypes {
		s.ReportFailures = s.ReportFailures || kind == types.FunctionResponseTypeReportBatchItemFailures
	}
	return s
}

// ageWindow is how far back the queue's age is looked for: the metric comes once a minute, some minutes late.
const ageWindow = 10 * time.Minute

// readAge asks CloudWatch: to look at the messages themselves would cost each of them a receive.
func (r *reader) readAge(ctx context.Context, q *Queue) error {
	now := time.Now()
	out, err := r.cloudwatch.GetMetricStatistics(ctx, &cloudwatch.GetMetricStatisticsInput{
		Namespace: aws.String("AWS/SQS"), MetricName: aws.String("ApproximateAgeOfOldestMessage"),
		Dimensions: []cwtypes.Dimension{{Name: aws.String("QueueName"), Value: &q.Name}},
		StartTime:  aws.Time(now.Add(-ageWindow)), EndTime: &now, Period: aws.Int32(60), Statistics: []cwtypes.Statistic{cwtypes.StatisticMaximum},
	})
	if ok, err := r.judge(err, "cloudwatch:GetMetricStatistics", "age of the messages in "+q.Name, resource{}); !ok {
		return err
	}
	var newest time.Time
	for _, point := range out.Datapoints {
		if at := aws.ToTime(point.Timestamp); point.Maximum != nil && !at.Before(newest) {
			age := time.Duration(*point.Maximum * float64(time.Second))
			newest, q.Age = at, &age
		}
	}
	return nil
}
