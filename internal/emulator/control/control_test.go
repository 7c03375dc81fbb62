package control_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	awslambda "github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/control"
	"agentworker/internal/emulator/lambda"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// plane is a control plane of one function, one alarm and one schedule that nobody runs, over HTTP.
type plane struct {
	url      string
	aws      aws.Config
	function *lambda.Function
	schedule *alarm.Schedule
}

func serve(t *testing.T) *plane {
	t.Helper()
	p := &plane{function: lambda.New(lambda.Config{
		Name: "dlqalarm", Timeout: 30 * time.Second, MemoryMiB: 256, Concurrency: 3, Env: []string{"A=1", "A=2", "SECRET=x", "AWS_ENDPOINT_URL=y"},
	})}
	a, err := alarm.New(alarm.Config{
		Name: "depth", Description: "Messages in dlq", QueueName: "dlq", Metric: func(context.Context) (int, error) { return 0, nil }, Period: time.Minute,
		AlarmActionARNs: []string{p.function.ARN()}, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.schedule, err = alarm.NewSchedule(alarm.ScheduleConfig{
		Rule: "sweep", Interval: 5 * time.Minute, Actions: []alarm.Action{func([]byte) error { return nil }}, ActionARNs: []string{p.function.ARN()}, Logger: quiet,
	}); err != nil {
		t.Fatal(err)
	}
	c := control.New(control.Config{
		Functions: []*lambda.Function{p.function}, Hidden: []string{"SECRET"}, Alarms: []*alarm.Alarm{a}, Schedules: []*alarm.Schedule{p.schedule},
		OldestMessage: func(queue string) (time.Duration, bool) { return 90*time.Second + time.Millisecond, queue == "tasks" },
	})
	mux := http.NewServeMux()
	mux.Handle(control.CloudWatchPath, c.CloudWatch())
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Target"), control.EventBridgeTarget) {
			c.EventBridge().ServeHTTP(w, r)
			return
		}
		c.CloudWatch().ServeHTTP(w, r)
	})
	mux.Handle("/", c.Lambda(http.NotFoundHandler()))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.url = server.URL
	p.aws = aws.Config{
		Region: "us-east-1", BaseEndpoint: &p.url, Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""), HTTPClient: server.Client(),
	}
	return p
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func TestAlarmsAreTold(t *testing.T) {
	t.Parallel()
	client := cloudwatch.NewFromConfig(serve(t).aws)
	names := func(in *cloudwatch.DescribeAlarmsInput) string {
		t.Helper()
		out, err := client.DescribeAlarms(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, a := range out.MetricAlarms {
			all = append(all, aws.ToString(a.AlarmName))
		}
		return strings.Join(all, " ")
	}
	for want, in := range map[string]*cloudwatch.DescribeAlarmsInput{
		"depth": {},
		"":      {AlarmNames: []string{"other"}},
	} {
		if got := names(in); got != want {
			t.Errorf("%+v: got %q, want %q", in, got, want)
		}
	}
	if got := names(&cloudwatch.DescribeAlarmsInput{StateValue: cwtypes.StateValueInsufficientData, AlarmNamePrefix: aws.String("dep")}); got != "depth" {
		t.Errorf("by state and prefix: got %q, want depth", got)
	}
	if got := names(&cloudwatch.DescribeAlarmsInput{StateValue: cwtypes.StateValueOk}); got != "" {
		t.Errorf("by another state: got %q, want none", got)
	}
	out, err := client.DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{AlarmNames: []string{"depth"}})
	if err != nil {
		t.Fatal(err)
	}
	a := out.MetricAlarms[0]
	if *a.AlarmArn != "arn:aws:cloudwatch:us-east-1:000000000000:alarm:depth" || *a.Dimensions[0].Value != "dlq" || *a.Period != 60 || *a.Threshold != 1 ||
		!*a.ActionsEnabled || a.AlarmActions[0] != "arn:aws:lambda:us-east-1:000000000000:function:dlqalarm" || time.Since(*a.StateUpdatedTimestamp) > time.Minute {
		t.Errorf("got %+v", a)
	}
	if _, err := client.DisableAlarmActions(t.Context(), &cloudwatch.DisableAlarmActionsInput{AlarmNames: []string{"depth", "other"}}); err != nil {
		t.Fatal(err)
	}
	if out, err = client.DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{}); err != nil || *out.MetricAlarms[0].ActionsEnabled {
		t.Errorf("disabled: got %+v, %v", out, err)
	}
	if _, err := client.DeleteAlarms(t.Context(), &cloudwatch.DeleteAlarmsInput{AlarmNames: []string{"depth"}}); err != nil || names(&cloudwatch.DescribeAlarmsInput{}) != "" {
		t.Errorf("deleted: got %v, want it gone", err)
	}
	if _, err := client.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{}); code(err) != "UnknownOperationException" {
		t.Errorf("another call: got %v, want an UnknownOperationException", err)
	}
}

func TestTheAgeOfTheOldestMessageIsAMetric(t *testing.T) {
	t.Parallel()
	client := cloudwatch.NewFromConfig(serve(t).aws)
	for queue, want := range map[string]float64{"tasks": 90, "absent": -1} {
		out, err := client.GetMetricStatistics(t.Context(), &cloudwatch.GetMetricStatisticsInput{
			Namespace: aws.String("AWS/SQS"), MetricName: aws.String(control.AgeMetric), Statistics: []cwtypes.Statistic{"Maximum"}, Period: aws.Int32(60),
			StartTime: aws.Time(time.Now().Add(-time.Hour)), EndTime: aws.Time(time.Now()), Dimensions: []cwtypes.Dimension{{Name: aws.String("QueueName"), Value: &queue}},
		})
		got := -1.0
		if err == nil && len(out.Datapoints) == 1 {
			got = aws.ToFloat64(out.Datapoints[0].Maximum)
		}
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", queue, got, err, want)
		}
	}
}

// The AWS CLI speaks JSON with CloudWatch, where the Go SDK speaks CBOR.
func TestCloudWatchInJSON(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, c := range []struct {
		call, body string
		status     int
		want       []string
	}{
		{"DescribeAlarms", `{"AlarmNames":["depth"],"MaxRecords":50,"Odd":{"a":[1.5,true,null]}}`, 200, []string{`"AlarmName":"depth"`, `"Period":60`, `"ActionsEnabled":true`, `"StateUpdatedTimestamp":1`}},
		{"DescribeAlarms", ``, 200, []string{`"AlarmName":"depth"`}},
		{"DescribeAlarms", `{"AlarmNames":[]}`, 200, []string{`"MetricAlarms":[]`}},
		{"DescribeAlarms", `no JSON`, 400, []string{`"__type":"SerializationException"`}},
		{"PutDashboard", `{}`, 400, []string{`"__type":"UnknownOperationException"`}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Target", control.CloudWatchTarget+c.call)
		resp, err := p.aws.HTTPClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != c.status {
			t.Errorf("%s %s: got %d, %v, want %d", c.call, c.body, resp.StatusCode, err, c.status)
		}
		for _, want := range c.want {
			if !strings.Contains(string(body), want) {
				t.Errorf("%s %s: got %s, want %s in it", c.call, c.body, body, want)
			}
		}
	}
}

func TestScheduleIsTold(t *testing.T) {
	t.Parallel()
	p := serve(t)
	client, name := eventbridge.NewFromConfig(p.aws), aws.String("sweep")
	d, err := client.DescribeRule(t.Context(), &eventbridge.DescribeRuleInput{Name: name})
	if err != nil || d.State != "ENABLED" || *d.ScheduleExpression != "rate(5 minutes)" || *d.Arn != "arn:aws:events:us-east-1:000000000000:rule/sweep" {
		t.Errorf("got %+v, %v", d, err)
	}
	targets, err := client.ListTargetsByRule(t.Context(), &eventbridge.ListTargetsByRuleInput{Rule: name})
	if err != nil || len(targets.Targets) != 1 || *targets.Targets[0].Arn != p.function.ARN() {
		t.Errorf("targets: got %+v, %v, want the function", targets, err)
	}
	if _, err := client.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: name}); err != nil || p.schedule.Enabled() {
		t.Errorf("disable: got %v, enabled: %v", err, p.schedule.Enabled())
	}
	if d, err = client.DescribeRule(t.Context(), &eventbridge.DescribeRuleInput{Name: name}); err != nil || d.State != "DISABLED" {
		t.Errorf("got %+v, %v, want it disabled", d, err)
	}
	if _, err = client.DescribeRule(t.Context(), &eventbridge.DescribeRuleInput{Name: aws.String("other")}); code(err) != "ResourceNotFoundException" {
		t.Errorf("another rule: got %v, want a ResourceNotFoundException", err)
	}
	if _, err = client.ListRules(t.Context(), &eventbridge.ListRulesInput{}); code(err) != "UnknownOperationException" || !strings.Contains(err.Error(), "DescribeRule") {
		t.Errorf("a call that is not served: got %v, want an UnknownOperationException that names those that are", err)
	}
}

func TestFunctionIsTold(t *testing.T) {
	t.Parallel()
	p := serve(t)
	client, name := awslambda.NewFromConfig(p.aws), aws.String("dlqalarm")
	f, err := client.GetFunctionConfiguration(t.Context(), &awslambda.GetFunctionConfigurationInput{FunctionName: aws.String(p.function.ARN())})
	if err != nil || *f.Timeout != 30 || *f.MemorySize != 256 || f.State != "Active" || len(f.Environment.Variables) != 1 || f.Environment.Variables["A"] != "2" {
		t.Errorf("got %+v, %v, want what the function has, without what is hidden", f, err)
	}
	if _, err := client.GetFunctionConfiguration(t.Context(), &awslambda.GetFunctionConfigurationInput{FunctionName: aws.String("other")}); code(err) != "ResourceNotFoundException" {
		t.Errorf("another function: got %v, want a ResourceNotFoundException", err)
	}
	if _, err := client.PutFunctionConcurrency(t.Context(), &awslambda.PutFunctionConcurrencyInput{FunctionName: name, ReservedConcurrentExecutions: aws.Int32(-1)}); code(err) != "InvalidParameterValueException" {
		t.Errorf("-1 reserved: got %v, want it refused", err)
	}
	if _, err := client.PutFunctionConcurrency(t.Context(), &awslambda.PutFunctionConcurrencyInput{FunctionName: name, ReservedConcurrentExecutions: aws.Int32(2)}); err != nil {
		t.Error(err)
	}
	account, err := client.GetAccountSettings(t.Context(), &awslambda.GetAccountSettingsInput{})
	if err != nil || account.AccountLimit.ConcurrentExecutions != 3 || *account.AccountLimit.UnreservedConcurrentExecutions != 1 {
		t.Errorf("account: got %+v, %v, want 3 and 1", account.AccountLimit, err)
	}
	if _, err := client.GetFunction(t.Context(), &awslambda.GetFunctionInput{FunctionName: name}); code(err) != "UnknownOperationException" || !strings.Contains(err.Error(), "GetFunctionConfiguration") {
		t.Errorf("a call that is not served: got %v, want an UnknownOperationException that names those that are", err)
	}
}

// Only whom the function's policy names may invoke it.
func TestPermissions(t *testing.T) {
	t.Parallel()
	p := serve(t)
	client, name := awslambda.NewFromConfig(p.aws), aws.String("dlqalarm")
	calls := 0
	act := control.Invoker(func([]byte) error { calls++; return nil }, p.function, "events.amazonaws.com", "arn:rule")
	if err := act(nil); err == nil || calls != 0 {
		t.Errorf("without a permission: got %v and %d calls, want an error and none", err, calls)
	}
	if _, err := client.GetPolicy(t.Context(), &awslambda.GetPolicyInput{FunctionName: name}); code(err) != "ResourceNotFoundException" {
		t.Errorf("policy of a function without one: got %v, want a ResourceNotFoundException", err)
	}
	permission := &awslambda.AddPermissionInput{
		FunctionName: name, StatementId: aws.String("rule"), Action: aws.String("lambda:InvokeFunction"), Principal: aws.String("events.amazonaws.com"), SourceArn: aws.String("arn:rule"),
	}
	if _, err := client.AddPermission(t.Context(), permission); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AddPermission(t.Context(), permission); code(err) != "ResourceConflictException" {
		t.Errorf("the same again: got %v, want a ResourceConflictException", err)
	}
	if err := act(nil); err != nil || calls != 1 {
		t.Errorf("with the permission: got %v and %d calls, want one", err, calls)
	}
	if err := control.Invoker(func([]byte) error { return nil }, p.function, "events.amazonaws.com", "arn:other")(nil); err == nil {
		t.Error("another rule: got no error")
	}
	out, err := client.GetPolicy(t.Context(), &awslambda.GetPolicyInput{FunctionName: name})
	if err != nil || !strings.Contains(*out.Policy, `"AWS:SourceArn":"arn:rule"`) {
		t.Errorf("policy: got %+v, %v, want the statement", out, err)
	}
	if _, err := client.RemovePermission(t.Context(), &awslambda.RemovePermissionInput{FunctionName: name, StatementId: aws.String("rule")}); err != nil {
		t.Fatal(err)
	}
	if err := act(nil); err == nil || calls != 1 {
		t.Errorf("with the permission removed: got %v and %d calls, want an error and no more", err, calls)
	}
	if _, err := client.RemovePermission(t.Context(), &awslambda.RemovePermissionInput{FunctionName: name, StatementId: aws.String("rule")}); code(err) != "ResourceNotFoundException" {
		t.Errorf("remove it again: got %v, want a ResourceNotFoundException", err)
	}
}
