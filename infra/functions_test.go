package main_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/config"
	"agentworker/internal/topology"
)

func TestFunctions(t *testing.T) {
	template := byDefault(t)
	s := topology.Default()
	for prefix, want := range map[string]topology.Function{"Worker": s.Worker, "Submit": s.Submit, "DLQAlarm": s.DLQAlarm} {
		_, f := only(t, template, "AWS::Lambda::Function", prefix)
		logs, group := only(t, template, "AWS::Logs::LogGroup", prefix+"Logs")
		role, _ := only(t, template, "AWS::IAM::Role", prefix)
		for property, value := range map[string]string{
			"Architectures": `["arm64"]`, "Runtime": `"provided.al2023"`, "Handler": `"bootstrap"`,
			"Timeout": fmt.Sprint(want.Timeout.Seconds()), "MemorySize": fmt.Sprint(want.MemoryMiB),
			"TracingConfig": `{"Mode":"Active"}`,
			"LoggingConfig": `{"ApplicationLogLevel":"INFO","LogFormat":"JSON","LogGroup":{"Ref":"` + logs + `"},"SystemLogLevel":"INFO"}`,
			"Role":          `{"Fn::GetAtt":["` + role + `","Arn"]}`,
		} {
			if got := text(t, f.Properties[property]); got != value {
				t.Errorf("%s: %s is %s, want %s", prefix, property, got, value)
			}
		}
		if got := group.Properties["RetentionInDays"]; got != 30.0 {
			t.Errorf("%s: logs are kept for %v days, want 30", prefix, got)
		}
		// By these, sam local invoke finds the function and its binary.
		if f.Metadata["aws:asset:path"] == nil || f.Metadata["aws:asset:property"] != "Code" {
			t.Errorf("%s: metadata for SAM's command line is %v", prefix, f.Metadata)
		}
		if path := strings.Split(f.Metadata["aws:cdk:path"].(string), "/"); path[len(path)-2] != want.Name {
			t.Errorf("%s: SAM's name of the function is %q, want %q", prefix, path[len(path)-2], want.Name)
		}
	}
	if got := ofType(template, "AWS::Lambda::Function"); len(got) != 3 {
		t.Errorf("functions: got %q, want the three", got)
	}
}

// The functions' environment is what they read, no more and no less, and it can be read.
func TestEnvironment(t *testing.T) {
	template := byDefault(t)
	environment := func(prefix string) map[string]string {
		_, f := only(t, template, "AWS::Lambda::Function", prefix)
		got := map[string]string{}
		for name, value := range at(f.Properties["Environment"], "Variables").(map[string]any) {
			v, ok := value.(string)
			if !ok { // a reference, which is resolved when it is deployed
				v = map[bool]string{true: "arn:aws:sns:eu-west-1:123456789012:topic", false: "https://sqs.eu-west-1.amazonaws.com/123456789012/queue"}[strings.HasSuffix(name, "ARN")]
			}
			got[name] = v
		}
		return got
	}
	check := func(prefix string, want map[string]string, load func([]string) error) {
		t.Helper()
		got := environment(prefix)
		maps.Copy(want, topology.Function{}.Collector()) // those the Go runtime reads
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s: variables (-read by the function +set):\n%s", prefix, diff)
		}
		var environ []string
		for name, value := range got {
			environ = append(environ, name+"="+value)
		}
		if err := load(environ); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	check("Worker", config.Variables(config.Worker{}), func(e []string) error {
		c, err := config.LoadFrom[config.Worker](e)
		if !c.PartialBatch || c.MaxReceiveCount != 5 || c.Retries != 3 || c.RecordRetention != 90*24*time.Hour {
			t.Errorf("worker reads %+v", c)
		}
		return err
	})
	check("Submit", config.Variables(config.Submit{}), func(e []string) error {
		_, err := config.LoadFrom[config.Submit](e)
		return err
	})
	check("DLQAlarm", config.Variables(config.DLQAlarm{DLQAlarm: "set", OrderedDLQAlarm: "set"}), func(e []string) error {
		c, err := config.LoadFrom[config.DLQAlarm](e)
		if c.DLQAlarm != "dev-agent-tasks-dlq-depth" || c.OrderedDLQAlarm != "dev-agent-tasks-ordered-dlq-depth" {
			t.Errorf("dlqalarm reads the alarms %q and %q", c.DLQAlarm, c.OrderedDLQAlarm)
		}
		return err
	})

	larger := templateOf(t, map[string]any{"workerMemoryMiB": "512"})
	_, worker := only(t, larger, "AWS::Lambda::Function", "Worker")
	if got := at(worker.Properties["Environment"], "Variables", "GOMEMLIMIT"); got != "409MiB" {
		t.Errorf("a worker of 512 MiB collects garbage at %v", got)
	}

	// Each reference is to the resource that the variable's name says.
	for prefix, references := range map[string]map[string]string{
		"Worker":   {"TABLE_NAME": "Table", "QUEUE_URL": "TasksQueue", "ORDERED_QUEUE_URL": "OrderedQueue"},
		"Submit":   {"TABLE_NAME": "Table", "QUEUE_URL": "TasksQueue", "ORDERED_QUEUE_URL": "OrderedQueue"},
		"DLQAlarm": {"TABLE_NAME": "Table", "DLQ_URL": "TasksDeadLetterQueue", "ORDERED_DLQ_URL": "OrderedDeadLetterQueue", "TOPIC_ARN": "Topic"},
	} {
		_, f := only(t, template, "AWS::Lambda::Function", prefix)
		for name, id := range references {
			if got := at(f.Properties["Environment"], "Variables", name, "Ref"); got != id {
				t.Errorf("%s: %s refers to %v, want %s", prefix, name, got, id)
			}
		}
	}
}

func TestMappings(t *testing.T) {
	template := byDefault(t)
	worker, _ := only(t, template, "AWS::Lambda::Function", "Worker")
	for prefix, batch := range map[string]float64{"Tasks": 10, "Ordered": 1} {
		_, m := only(t, template, "AWS::Lambda::EventSourceMapping", prefix)
		want := map[string]any{
			"BatchSize":             batch,
			"EventSourceArn":        map[string]any{"Fn::GetAtt": []any{prefix + "Queue", "Arn"}},
			"FunctionName":          map[string]any{"Ref": worker},
			"FunctionResponseTypes": []any{"ReportBatchItemFailures"},
			"MetricsConfig":         map[string]any{"Metrics": []any{"EventCount"}},
			"ScalingConfig":         map[string]any{"MaximumConcurrency": 10.0},
		}
		delete(m.Properties, "Tags")
		if diff := cmp.Diff(want, m.Properties); diff != "" {
			t.Errorf("%s (-want +got):\n%s", prefix, diff)
		}
	}
}

func TestProvisionedPollersTakeThePlaceOfConcurrency(t *testing.T) {
	template := templateOf(t, map[string]any{"minimumPollers": "2", "maximumPollers": "20", "batchSize": "100", "batchingWindowSeconds": "2"})
	if err := template.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ofType(template, "AWS::Lambda::EventSourceMapping") {
		p := template.Resources[id].Properties
		if got, want := text(t, p["ProvisionedPollerConfig"]), `{"MaximumPollers":20,"MinimumPollers":2}`; got != want {
			t.Errorf("%s: pollers are %s, want %s", id, got, want)
		}
		if p["ScalingConfig"] != nil {
			t.Errorf("%s: scaling is %s, want none", id, text(t, p["ScalingConfig"]))
		}
	}
	_, m := only(t, template, "AWS::Lambda::EventSourceMapping", "Tasks")
	if got := m.Properties["MaximumBatchingWindowInSeconds"]; got != 2.0 {
		t.Errorf("window is %v, want 2", got)
	}
}

// Invoked asynchronously, dlqalarm is tried three times; what fails then is told on the topic.
func TestDLQAlarmIsInvokedInTimeAndMissedWhenItFails(t *testing.T) {
	template := byDefault(t)
	function, _ := only(t, template, "AWS::Lambda::Function", "DLQAlarm")
	_, rule := only(t, template, "AWS::Events::Rule", "DLQAlarm")
	if got, want := rule.Properties["ScheduleExpression"], "rate(5 minutes)"; got != want {
		t.Errorf("schedule is %v, want %v", got, want)
	}
	if got := at(rule.Properties["Targets"].([]any)[0], "Arn", "Fn::GetAtt").([]any)[0]; got != function {
		t.Errorf("the schedule's target is %v, want %v", got, function)
	}
	_, invoke := only(t, template, "AWS::Lambda::EventInvokeConfig", "DLQAlarm")
	if got, want := text(t, invoke.Properties["DestinationConfig"]), `{"OnFailure":{"Destination":{"Ref":"Topic"}}}`; got != want {
		t.Errorf("destination is %s, want %s", got, want)
	}
	if got := invoke.Properties["MaximumRetryAttempts"]; got != 2.0 {
		t.Errorf("retries are %v, want 2", got)
	}
	permitted := false
	for _, id := range ofType(template, "AWS::Lambda::Permission") {
		p := template.Resources[id].Properties
		permitted = permitted || p["Principal"] == "events.amazonaws.com" && at(p["FunctionName"], "Fn::GetAtt").([]any)[0] == function
	}
	if !permitted {
		t.Error("the schedule may not invoke dlqalarm")
	}
}

// A topic's own policy takes the place of the default one, by which alarms could publish.
func TestAlarmsMayPublish(t *testing.T) {
	_, policy := only(t, byDefault(t), "AWS::SNS::TopicPolicy", "")
	var deny, allow bool
	for _, s := range at(policy.Properties["PolicyDocument"], "Statement").([]any) {
		switch {
		case at(s, "Effect") == "Deny" && text(t, at(s, "Condition")) == `{"Bool":{"aws:SecureTransport":"false"}}`:
			deny = true
		case at(s, "Effect") == "Allow" && at(s, "Action") == "sns:Publish" && at(s, "Principal", "Service") == "cloudwatch.amazonaws.com":
			allow = text(t, at(s, "Condition")) == `{"StringEquals":{"aws:SourceAccount":{"Ref":"AWS::AccountId"}}}`
		}
	}
	if !deny {
		t.Error("the topic takes messages without TLS")
	}
	if !allow {
		t.Error("the account's alarms, and only those, may not publish")
	}
}

func TestEmailIsAskedToSubscribe(t *testing.T) {
	if got := ofType(byDefault(t), "AWS::SNS::Subscription"); len(got) != 0 {
		t.Errorf("by default: got subscriptions %q, want none", got)
	}
	_, s := only(t, templateOf(t, map[string]any{"alarmEmail": "ops@example.com"}), "AWS::SNS::Subscription", "")
	if s.Properties["Protocol"] != "email" || s.Properties["Endpoint"] != "ops@example.com" || at(s.Properties["TopicArn"], "Ref") != "Topic" {
		t.Errorf("got %s", text(t, s.Properties))
	}
}
