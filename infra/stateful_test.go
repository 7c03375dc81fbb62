package main_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CloudFormation replaces a resource whose logical id changes: a change here means an empty table, lost messages, a new
// address for every client, or people who hear of no alarm any more.
func TestLogicalIDsArePinned(t *testing.T) {
	template := byDefault(t)
	for id, kind := range map[string]string{
		"Table":                  "AWS::DynamoDB::Table",
		"TasksQueue":             "AWS::SQS::Queue",
		"TasksDeadLetterQueue":   "AWS::SQS::Queue",
		"OrderedQueue":           "AWS::SQS::Queue",
		"OrderedDeadLetterQueue": "AWS::SQS::Queue",
		"Topic":                  "AWS::SNS::Topic",
		"Api":                    "AWS::ApiGatewayV2::Api",
	} {
		if got := template.Resources[id].Type; got != kind {
			t.Errorf("%s: got type %q, want %q", id, got, kind)
		}
	}
}

// Tables and queues stay when the stack goes, whichever there are.
func TestStatefulResourcesOutliveTheStack(t *testing.T) {
	template := byDefault(t)
	stateful := slices.Concat(ofType(template, "AWS::DynamoDB::Table"), ofType(template, "AWS::SQS::Queue"))
	if len(stateful) != 5 {
		t.Errorf("stateful resources: got %q, want a table and four queues", stateful)
	}
	for _, id := range stateful {
		if got := template.Resources[id].DeletionPolicy; got != "Retain" {
			t.Errorf("%s: deletion policy is %q, want Retain", id, got)
		}
		if got := template.Resources[id].UpdateReplacePolicy; got != "Retain" {
			t.Errorf("%s: update-replace policy is %q, want Retain", id, got)
		}
	}
}

func TestTable(t *testing.T) {
	want := map[string]any{
		"AttributeDefinitions": []any{
			map[string]any{"AttributeName": "pk", "AttributeType": "S"},
			map[string]any{"AttributeName": "sk", "AttributeType": "S"},
		},
		"KeySchema": []any{
			map[string]any{"AttributeName": "pk", "KeyType": "HASH"},
			map[string]any{"AttributeName": "sk", "KeyType": "RANGE"},
		},
		"BillingMode":                      "PAY_PER_REQUEST",
		"DeletionProtectionEnabled":        true,
		"PointInTimeRecoverySpecification": map[string]any{"PointInTimeRecoveryEnabled": true},
		"TimeToLiveSpecification":          map[string]any{"AttributeName": "expires_at", "Enabled": true},
	}
	got := byDefault(t).Resources["Table"].Properties
	delete(got, "Tags")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// Each dead-letter queue takes messages of its own queue only, and that by the name which the queue has.
func TestRedrive(t *testing.T) {
	template := byDefault(t)
	for _, prefix := range []string{"Tasks", "Ordered"} {
		queue, dead := template.Resources[prefix+"Queue"].Properties, template.Resources[prefix+"DeadLetterQueue"].Properties
		wantPolicy := map[string]any{
			"deadLetterTargetArn": map[string]any{"Fn::GetAtt": []any{prefix + "DeadLetterQueue", "Arn"}}, "maxReceiveCount": 5.0,
		}
		if diff := cmp.Diff(any(wantPolicy), queue["RedrivePolicy"]); diff != "" {
			t.Errorf("%s: redrive policy (-want +got):\n%s", prefix, diff)
		}
		if got := at(dead["RedriveAllowPolicy"], "redrivePermission"); got != "byQueue" {
			t.Errorf("%s: redrive permission is %v, want byQueue", prefix, got)
		}
		sources, _ := at(dead["RedriveAllowPolicy"], "sourceQueueArns").([]any)
		if len(sources) != 1 {
			t.Fatalf("%s: sources are %s, want one", prefix, text(t, sources))
		}
		arn, _ := at(sources[0], "Fn::Join").([]any)
		name, _ := at(queue["QueueName"], "Fn::Join").([]any)
		arnParts, nameParts := arn[1].([]any), name[1].([]any)
		want := slices.Clone(nameParts)
		want[0] = ":" + want[0].(string)
		got := arnParts[len(arnParts)-len(nameParts):]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the source's name in the allow policy (-the queue's own +got):\n%s", prefix, diff)
		}
		if _, named := dead["QueueName"]; named {
			t.Errorf("%s: the dead-letter queue has a fixed name, %v", prefix, dead["QueueName"])
		}
	}
}

func TestQueuesAreEncryptedAndTakeTLSOnly(t *testing.T) {
	template := byDefault(t)
	refused := map[string]bool{}
	for _, id := range ofType(template, "AWS::SQS::QueuePolicy") {
		p := template.Resources[id].Properties
		for _, statement := range at(p["PolicyDocument"], "Statement").([]any) {
			if at(statement, "Effect") == "Deny" && at(statement, "Action") == "sqs:*" && text(t, at(statement, "Condition")) == `{"Bool":{"aws:SecureTransport":"false"}}` {
				refused[at(p["Queues"].([]any)[0], "Ref").(string)] = true
			}
		}
	}
	for _, id := range ofType(template, "AWS::SQS::Queue") {
		if template.Resources[id].Properties["SqsManagedSseEnabled"] != true {
			t.Errorf("%s is not encrypted", id)
		}
		if !refused[id] {
			t.Errorf("%s takes requests without TLS", id)
		}
	}
}

// Two stages have nothing in common: neither a name nor a metric.
func TestStagesLiveSideBySide(t *testing.T) {
	names := func(context map[string]any) map[string]string {
		template := templateOf(t, context)
		got := map[string]string{}
		for id, r := range template.Resources {
			for _, property := range []string{"TableName", "QueueName", "TopicName", "FunctionName", "RoleName", "LogGroupName", "AlarmName", "DashboardName"} {
				if name, ok := r.Properties[property]; ok && r.Type != "AWS::Lambda::EventSourceMapping" && r.Type != "AWS::Lambda::Permission" && r.Type != "AWS::Lambda::EventInvokeConfig" {
					got[id+" "+property] = text(t, name)
				}
			}
			if vars, ok := at(r.Properties["Environment"], "Variables", "METRICS_NAMESPACE").(string); ok {
				got[id+" namespace"] = vars
			}
		}
		return got
	}
	dev, prod := names(nil), names(map[string]any{"stage": "prod"})
	if len(dev) != len(prod) || len(dev) < 12 {
		t.Fatalf("named resources: got %v and %v", dev, prod)
	}
	for what, name := range dev {
		if prod[what] == name || prod[what] == "" {
			t.Errorf("%s: both stages have %s", what, name)
		}
	}
}
