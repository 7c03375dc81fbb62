package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/emulator"
	"agentworker/internal/emulator/mapping"
	"agentworker/internal/topology"
)

const (
	environmentFile = "environment"
	eventsFile      = "events"
)

// beFunction makes this binary a Lambda function that only writes down its environment and its events. The local chain
// starts it in the place of the real ones.
func beFunction() {
	jsii.Close() // importing the CDK has begun to start its engine
	err := os.WriteFile(environmentFile, []byte(strings.Join(os.Environ(), "\n")), 0o600)
	if err != nil {
		panic(err)
	}
	runtime.Start(func(_ context.Context, event json.RawMessage) (map[string]any, error) {
		var line bytes.Buffer
		if err := json.Compact(&line, event); err != nil {
			return nil, err
		}
		line.WriteByte('\n')
		f, err := os.OpenFile(eventsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(line.Bytes())
		return map[string]any{"statusCode": 200, "batchItemFailures": []string{}}, err
	})
}

// local is a running local chain whose functions are this binary.
type local struct {
	*emulator.Chain
	dir string
	sqs *sqs.Client
}

func startLocal(t *testing.T) *local {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"worker", "submit", "dlqalarm"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, filepath.Join(dir, name, "bootstrap")); err != nil {
			t.Fatal(err)
		}
	}
	chain, err := emulator.Start(t.Context(), emulator.Config{
		Stack: topology.Default(), Workers: 1, BinDir: dir, ToolsDir: filepath.Join("..", ".tools"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := chain.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return &local{Chain: chain, dir: dir, sqs: sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: aws.String(chain.AWSURL()), Credentials: anybody()})}
}

func anybody() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider("any", "any", "")
}

// What runs here runs there: no queue attribute, table setting, route, environment variable or alarm is in the local
// chain or in the template alone.
func TestLocalChainAndTemplateDoNotDrift(t *testing.T) {
	chain, template := startLocal(t), byDefault(t)
	s := topology.Default()

	t.Run("queues", func(t *testing.T) {
		for id, name := range map[string]string{
			"TasksQueue": s.Tasks.QueueName(), "TasksDeadLetterQueue": s.Tasks.DeadLetterName(),
			"OrderedQueue": s.Ordered.QueueName(), "OrderedDeadLetterQueue": s.Ordered.DeadLetterName(),
		} {
			if diff := cmp.Diff(deployedQueue(t, template.Resources[id].Properties), chain.queue(t, name)); diff != "" {
				t.Errorf("%s (-deployed +local):\n%s", name, diff)
			}
		}
	})

	t.Run("table", func(t *testing.T) {
		client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(chain.AWSURL()), Credentials: anybody()})
		out, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &s.TableName})
		if err != nil {
			t.Fatal(err)
		}
		ttl, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &s.TableName})
		if err != nil {
			t.Fatal(err)
		}
		p := template.Resources["Table"].Properties
		var keys, attributes []any
		for _, k := range out.Table.KeySchema {
			keys = append(keys, map[string]any{"AttributeName": *k.AttributeName, "KeyType": string(k.KeyType)})
		}
		for _, a := range out.Table.AttributeDefinitions {
			attributes = append(attributes, map[string]any{"AttributeName": *a.AttributeName, "AttributeType": string(a.AttributeType)})
		}
		for what, pair := range map[string][2]any{
			"keys":         {p["KeySchema"], any(keys)},
			"attributes":   {p["AttributeDefinitions"], any(attributes)},
			"billing":      {p["BillingMode"], string(out.Table.BillingModeSummary.BillingMode)},
			"time to live": {at(p["TimeToLiveSpecification"], "AttributeName"), aws.ToString(ttl.TimeToLiveDescription.AttributeName)},
			"indexes":      {p["GlobalSecondaryIndexes"] != nil, len(out.Table.GlobalSecondaryIndexes) > 0},
		} {
			if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
				t.Errorf("%s (-deployed +local):\n%s", what, diff)
			}
		}
	})

	t.Run("routes", func(t *testing.T) {
		parameter := regexp.MustCompile(`\{[^}]+\}`)
		for route := range routes(t, template) {
			method, path, _ := strings.Cut(route, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, chain.APIURL()+parameter.ReplaceAllString(path, "1"), nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("%s: the local API answers %s, want it to reach the function", route, response.Status)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})

	t.Run("environment", func(t *testing.T) {
		client := lambda.New(lambda.Options{Region: "us-east-1", BaseEndpoint: aws.String(chain.AWSURL()), Credentials: anybody()})
		if _, err := client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &s.DLQAlarm.Name, Payload: []byte(`{}`)}); err != nil {
			t.Fatal(err) // this one is not started before it is needed
		}
		for prefix, name := range map[string]string{"Worker": s.Worker.Name, "Submit": s.Submit.Name, "DLQAlarm": s.DLQAlarm.Name} {
			_, f := only(t, template, "AWS::Lambda::Function", prefix)
			want, got := map[string]string{}, chain.environment(t, name)
			for variable, value := range at(f.Properties["Environment"], "Variables").(map[string]any) {
				fixed, ok := value.(string)
				if _, set := got[variable]; !set && strings.HasSuffix(variable, "DLQ_ALARM") {
					continue // unset, it is the queue's name and "-depth", which is right locally
				}
				if !ok || perStage[variable] {
					fixed = "another one in each deployment"
					if _, set := got[variable]; set {
						got[variable] = fixed
					}
				}
				want[variable] = fixed
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-deployed +local):\n%s", name, diff)
			}
		}
	})

	t.Run("alarms", func(t *testing.T) {
		deployed := map[string]string{}
		for _, id := range ofType(template, "AWS::CloudWatch::Alarm") {
			p := template.Resources[id].Properties
			if p["MetricName"] == "ApproximateNumberOfMessagesVisible" {
				deployed[strings.TrimPrefix(p["AlarmName"].(string), "dev-")] = target(t, []any{at(p["Dimensions"].([]any)[0], "Value")})
			}
		}
		queues := map[string]string{s.Tasks.DeadLetterName(): "TasksDeadLetterQueue", s.Ordered.DeadLetterName(): "OrderedDeadLetterQueue"}
		for name := range queues {
			chain.send(t, name)
		}
		fired := map[string]string{}
		for alarm, queue := range chain.alarms(t, len(queues)) {
			fired[alarm] = queues[queue]
		}
		if diff := cmp.Diff(deployed, fired); diff != "" {
			t.Errorf("alarms and their queues (-deployed +local):\n%s", diff)
		}
	})
}

// perStage are variables whose value is another one on each stage.
var perStage = map[string]bool{"METRICS_NAMESPACE": true, "DLQ_ALARM": true, "ORDERED_DLQ_ALARM": true}

// deployedQueue are a queue's properties as attributes.
func deployedQueue(t *testing.T, p map[string]any) map[string]string {
	t.Helper()
	got := map[string]string{}
	for name, value := range p {
		switch name {
		case "QueueName", "Tags", "SqsManagedSseEnabled": // generated, bookkeeping, and of no effect on what a client sees
		case "RedrivePolicy":
			got[name] = fmt.Sprint(at(value, "maxReceiveCount"))
		case "RedriveAllowPolicy":
			got[name] = at(value, "redrivePermission").(string)
		default:
			got[name] = strings.Trim(text(t, value), `"`)
		}
	}
	return got
}

// queue are the same attributes of a local queue.
func (l *local) queue(t *testing.T, name string) map[string]string {
	t.Helper()
	out, err := l.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: l.url(t, name), AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, value := range out.Attributes {
		switch {
		case strings.HasPrefix(name, "Approximate"), strings.HasSuffix(name, "Timestamp"), name == "QueueArn", name == "SqsManagedSseEnabled":
		// What a queue has that nobody has set. Source: Amazon SQS API Reference, "CreateQueue".
		case name == "DelaySeconds" && value == "0", name == "MaximumMessageSize" && value == "1048576":
		case name == "RedrivePolicy", name == "RedriveAllowPolicy":
			var policy struct {
				MaxReceiveCount   json.Number `json:"maxReceiveCount"`
				RedrivePermission string      `json:"redrivePermission"`
			}
			if err := json.Unmarshal([]byte(value), &policy); err != nil {
				t.Fatalf("%s %s: %v", name, value, err)
			}
			got[name] = policy.MaxReceiveCount.String() + policy.RedrivePermission
		default:
			got[name] = value
		}
	}
	return got
}

func (l *local) url(t *testing.T, name string) *string {
	t.Helper()
	out, err := l.sqs.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return out.QueueUrl
}

func (l *local) send(t *testing.T, name string) {
	t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: l.url(t, name), MessageBody: aws.String("a dead letter")}
	if strings.HasSuffix(name, ".fifo") {
		in.MessageGroupId = aws.String("1")
	}
	if _, err := l.sqs.SendMessage(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

// environment are the variables of a function's process, without those that Lambda and the machine set.
func (l *local) environment(t *testing.T, function string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, function, environmentFile))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for pair := range strings.SplitSeq(string(text), "\n") {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "AWS_") && !strings.HasPrefix(name, "LAMBDA_") && !strings.HasPrefix(name, "_") &&
			!slices.Contains([]string{"PATH", "TMPDIR", "LANG", "TZ"}, name) {
			got[name] = value
		}
	}
	return got
}

// alarms waits until n alarms have called dlqalarm; it returns their queues by their names.
func (l *local) alarms(t *testing.T, n int) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		got := l.fired(t)
		if len(got) >= n {
			return got
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("alarms that went off: got %v, want %d", slices.Sorted(maps.Keys(got)), n)
		}
	}
}

func (l *local) fired(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "dlqalarm", eventsFile))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var event struct {
			AlarmData struct {
				AlarmName     string
				Configuration struct {
					Metrics []struct {
						MetricStat struct {
							Metric struct{ Dimensions map[string]string }
						}
					}
				}
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		if data := event.AlarmData; data.AlarmName != "" {
			got[data.AlarmName] = data.Configuration.Metrics[0].MetricStat.Metric.Dimensions["QueueName"]
		}
	}
	return got
}

// A mapping's settings are the same three times: in the topology, in the template, and in the local mapping. A setting
// that is new in one of them has to be put into this table, and so into the others.
func TestMappingSettingsDoNotDrift(t *testing.T) {
	template := byDefault(t)
	settings := map[string]struct {
		property []string // of the template
		local    string   // field of the local mapping; "": it has none
		value    func(topology.Mapping) any
	}{
		"BatchSize":          {[]string{"BatchSize"}, "BatchSize", func(m topology.Mapping) any { return float64(m.BatchSize) }},
		"BatchingWindow":     {[]string{"MaximumBatchingWindowInSeconds"}, "BatchingWindow", func(topology.Mapping) any { return nil }},
		"MaximumConcurrency": {[]string{"ScalingConfig", "MaximumConcurrency"}, "MaximumConcurrency", func(m topology.Mapping) any { return float64(m.MaximumConcurrency) }},
		// Pollers change how fast a mapping grows, and nothing of what it does with a message.
		"Pollers":                 {[]string{"ProvisionedPollerConfig"}, "", func(topology.Mapping) any { return nil }},
		"ReportBatchItemFailures": {[]string{"FunctionResponseTypes"}, "ReportBatchItemFailures", func(topology.Mapping) any { return []any{"ReportBatchItemFailures"} }},
	}
	localOnly := []string{ // what on AWS is not set at a mapping
		"QueueURL", "QueueARN", "Region", "FunctionTimeout", "DrainTimeout", "Function", "SQS", "Logger", "Observe",
	}
	deployedOnly := []string{"EventSourceArn", "FunctionName", "MetricsConfig", "Tags"} // wiring and metrics

	var inTopology, inLocal []string
	for f := range reflect.TypeFor[topology.Mapping]().Fields() {
		inTopology = append(inTopology, f.Name)
	}
	for f := range reflect.TypeFor[mapping.Config]().Fields() {
		if !slices.Contains(localOnly, f.Name) {
			inLocal = append(inLocal, f.Name)
		}
	}
	var wantLocal, wantDeployed []string
	for _, s := range settings {
		if s.local != "" {
			wantLocal = append(wantLocal, s.local)
		}
		wantDeployed = append(wantDeployed, s.property[0])
	}
	slices.Sort(inTopology)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(settings)), inTopology); diff != "" {
		t.Errorf("settings in the topology (-known here +there):\n%s", diff)
	}
	slices.Sort(inLocal)
	slices.Sort(wantLocal)
	// A clock in a test's place is none of AWS's.
	inLocal = slices.DeleteFunc(inLocal, func(name string) bool { return name == "Clock" })
	if diff := cmp.Diff(wantLocal, inLocal); diff != "" {
		t.Errorf("settings of the local mapping (-known here +there):\n%s", diff)
	}
	s := topology.Default()
	for prefix, m := range map[string]topology.Mapping{"Tasks": s.Tasks.Mapping, "Ordered": s.Ordered.Mapping} {
		_, r := only(t, template, "AWS::Lambda::EventSourceMapping", prefix)
		for property := range r.Properties {
			if !slices.Contains(wantDeployed, property) && !slices.Contains(deployedOnly, property) {
				t.Errorf("%s: the deployed mapping has %s, of which the local one knows nothing", prefix, property)
			}
		}
		for name, setting := range settings {
			if diff := cmp.Diff(setting.value(m), at(r.Properties, setting.property...)); diff != "" {
				t.Errorf("%s: %s (-topology +deployed):\n%s", prefix, name, diff)
			}
		}
	}
}
