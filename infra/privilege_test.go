package main_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infra "agentworker/infra"
	"agentworker/internal/topology"
)

// granted are a role's actions, each with the resources, but for those that every function has for logs and traces.
func granted(t *testing.T, template infra.Template, role string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for _, id := range ofType(template, "AWS::IAM::Policy") {
		p := template.Resources[id].Properties
		if at(p["Roles"].([]any)[0], "Ref") != role {
			continue
		}
		for _, statement := range at(p["PolicyDocument"], "Statement").([]any) {
			if at(statement, "Effect") != "Allow" {
				t.Errorf("%s: statement of another kind: %s", role, text(t, statement))
			}
			condition := ""
			for operator, test := range mapOf(at(statement, "Condition")) {
				for key, value := range mapOf(test) {
					condition += " if " + key + " " + operator + " " + resource(t, value)
				}
			}
			var resources []string
			for _, r := range listOf(at(statement, "Resource")) {
				resources = append(resources, resource(t, r)+condition)
			}
			for _, action := range listOf(at(statement, "Action")) {
				got[action.(string)] = append(got[action.(string)], resources...)
				slices.Sort(got[action.(string)])
			}
		}
	}
	return got
}

func listOf(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}

func mapOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// resource is a logical id, or a text in which references stand in ${}.
func resource(t *testing.T, v any) string {
	t.Helper()
	if ref, ok := at(v, "Ref").(string); ok {
		return ref
	}
	if get, ok := at(v, "Fn::GetAtt").([]any); ok && get[1] == "Arn" {
		return get[0].(string)
	}
	if s, ok := v.(string); ok {
		return s
	}
	join, ok := at(v, "Fn::Join").([]any)
	if !ok || join[0] != "" {
		return text(t, v)
	}
	var b strings.Builder
	for _, part := range join[1].([]any) {
		if s, ok := part.(string); ok {
			b.WriteString(s)
		} else {
			b.WriteString("${" + resource(t, part) + "}")
		}
	}
	return b.String()
}

// ofModel are actions that the worker needs only when it is configured with what needs them.
var ofModel = []string{
	"bedrock:InvokeModel", "bedrock:Retrieve", "s3:GetObject", "s3:ListBucket", "secretsmanager:GetSecretValue", "ssm:GetParameter",
}

// A role has exactly the actions that its function's code calls for, each on exactly the resources that it is for. The
// calls are read out of the code.
func TestRolesAllowWhatTheCodeCallsAndNothingElse(t *testing.T) {
	template := byDefault(t)
	source := loadCode(t)
	queues, dead, table := []string{"OrderedQueue", "TasksQueue"}, []string{"OrderedDeadLetterQueue", "TasksDeadLetterQueue"}, []string{"Table"}
	tests := map[string]struct {
		command string
		// mapping are actions that Lambda's poller calls in the function's name.
		// Source: AWS Lambda Developer Guide, "Using Lambda with Amazon SQS".
		mapping []string
		on      map[string][]string // resources by service or, where it differs, by action
	}{
		"Worker": {
			"agentworker/functions/worker",
			[]string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"},
			map[string][]string{"dynamodb": table, "sqs": queues},
		},
		"Submit": {"agentworker/functions/submit", nil, map[string][]string{"dynamodb": table, "sqs": queues}},
		"DLQAlarm": {"agentworker/functions/dlqalarm", nil, map[string][]string{
			"dynamodb": table, "sqs": dead, "sns": {"Topic"},
			"sqs:GetQueueAttributes": slices.Sorted(slices.Values(slices.Concat(queues, dead))),
		}},
	}
	for prefix, test := range tests {
		t.Run(prefix, func(t *testing.T) {
			want := map[string][]string{}
			for _, action := range slices.Concat(source.actions(t, test.command), test.mapping) {
				if slices.Contains(ofModel, action) {
					continue
				}
				service, _, _ := strings.Cut(action, ":")
				want[action] = test.on[service]
				if on, differs := test.on[action]; differs {
					want[action] = on
				}
			}
			logs, _ := only(t, template, "AWS::Logs::LogGroup", prefix+"Logs")
			for _, action := range []string{"logs:CreateLogStream", "logs:PutLogEvents"} {
				want[action] = []string{logs}
			}
			for _, action := range []string{"xray:PutTraceSegments", "xray:PutTelemetryRecords"} {
				want[action] = []string{"*"} // X-Ray knows no resources
			}
			role, _ := only(t, template, "AWS::IAM::Role", prefix)
			if diff := cmp.Diff(want, granted(t, template, role)); diff != "" {
				t.Errorf("actions and resources (-called for by the code +granted):\n%s", diff)
			}
			if r := template.Resources[role].Properties; r["ManagedPolicyArns"] != nil || r["Policies"] != nil {
				t.Errorf("%s has more policies: %s", role, text(t, r))
			}
		})
	}
	if got := ofType(template, "AWS::IAM::Role"); len(got) != len(tests) {
		t.Errorf("roles: got %q, want one per function", got)
	}
}

// The reading of the code is not empty by mistake: it finds what is known to be there.
func TestCallsAreFound(t *testing.T) {
	source := loadCode(t)
	for command, want := range map[string]string{
		"worker": "sqs:ChangeMessageVisibility", "submit": "sqs:SendMessage", "dlqalarm": "sns:Publish",
	} {
		if got := source.actions(t, "agentworker/functions/"+command); !slices.Contains(got, want) || !slices.Contains(got, "dynamodb:UpdateItem") {
			t.Errorf("%s: got %q, want %s and dynamodb:UpdateItem among them", command, got, want)
		}
	}
}

// Whatever the worker may be configured with, its role then has what the code calls for, on that and nothing else.
func TestModelSettingsAllowWhatTheyNeed(t *testing.T) {
	const own = "arn:${AWS::Partition}:"
	tests := map[string]struct {
		context map[string]any
		want    map[string][]string
	}{
		"model by id": {
			map[string]any{"model": "bedrock:anthropic.claude-3-haiku-20240307-v1:0"},
			map[string][]string{"bedrock:InvokeModel": {own + "bedrock:${AWS::Region}::foundation-model/anthropic.claude-3-haiku-20240307-v1:0"}},
		},
		"model by inference profile": {
			map[string]any{"model": "bedrock:eu.amazon.nova-lite-v1:0"},
			map[string][]string{"bedrock:InvokeModel": {
				own + "bedrock:*::foundation-model/amazon.nova-lite-v1:0 if bedrock:InferenceProfileArn StringEquals " + own + "bedrock:${AWS::Region}:${AWS::AccountId}:inference-profile/eu.amazon.nova-lite-v1:0",
				own + "bedrock:${AWS::Region}:${AWS::AccountId}:inference-profile/eu.amazon.nova-lite-v1:0",
			}},
		},
		"model by an application's profile": {
			map[string]any{"model": "bedrock:arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2"},
			map[string][]string{"bedrock:InvokeModel": {
				"arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2",
				own + "bedrock:*::foundation-model/* if bedrock:InferenceProfileArn StringEquals arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2",
			}},
		},
		"model by ARN": {
			map[string]any{"model": "bedrock:arn:aws:bedrock:eu-west-1:123456789012:provisioned-model/a1b2"},
			map[string][]string{"bedrock:InvokeModel": {"arn:aws:bedrock:eu-west-1:123456789012:provisioned-model/a1b2"}},
		},
		"knowledge base": {
			map[string]any{"retriever": "kb:KB12345678"},
			map[string][]string{"bedrock:Retrieve": {own + "bedrock:${AWS::Region}:${AWS::AccountId}:knowledge-base/KB12345678"}},
		},
		"bucket with a prefix": {
			map[string]any{"retriever": "s3://docs/agent"},
			map[string][]string{
				"s3:GetObject":  {own + "s3:::docs/agent/*"},
				"s3:ListBucket": {own + "s3:::docs if s3:prefix StringLike agent/*"},
			},
		},
		"bucket": {
			map[string]any{"retriever": "s3://docs"},
			map[string][]string{"s3:GetObject": {own + "s3:::docs/*"}, "s3:ListBucket": {own + "s3:::docs if s3:prefix StringLike *"}},
		},
		"key in a secret": {
			map[string]any{"model": "openai:gpt", "openaiKeySecret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"},
			map[string][]string{"secretsmanager:GetSecretValue": {"arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"}},
		},
		"key in a parameter": {
			map[string]any{"model": "openai:gpt", "openaiKeyParameter": "/agent/key"},
			map[string][]string{"ssm:GetParameter": {own + "ssm:${AWS::Region}:${AWS::AccountId}:parameter/agent/key"}},
		},
	}
	role, _ := only(t, byDefault(t), "AWS::IAM::Role", "Worker")
	base := granted(t, byDefault(t), role)
	covered := map[string]bool{}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template := templateOf(t, test.context)
			got := granted(t, template, role)
			for action, resources := range base {
				if diff := cmp.Diff(resources, got[action]); diff != "" {
					t.Errorf("%s (-without the setting +with it):\n%s", action, diff)
				}
				delete(got, action)
			}
			for _, resources := range test.want {
				slices.Sort(resources)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("more actions (-want +got):\n%s", diff)
			}
		})
		for action := range test.want {
			covered[action] = true
		}
	}
	for _, action := range loadCode(t).actions(t, "agentworker/functions/worker") {
		if _, always := base[action]; !always && !covered[action] {
			t.Errorf("the worker calls for %s, and no setting grants it", action)
		}
	}
}

// A topic that may send tasks may send them to the queue of its own type, and reaches those who read them.
func TestAllowedTopics(t *testing.T) {
	const topic, ordered = "arn:aws:sns:eu-west-1:123456789012:jobs", "arn:aws:sns:eu-west-1:123456789012:jobs.fifo"
	template := templateOf(t, map[string]any{"allowedTopics": topic + "," + ordered})
	got := map[string]string{}
	for _, id := range ofType(template, "AWS::SQS::QueuePolicy") {
		p := template.Resources[id].Properties
		for _, s := range at(p["PolicyDocument"], "Statement").([]any) {
			if at(s, "Effect") == "Allow" {
				got[target(t, p["Queues"])] += text(t, s)
			}
		}
	}
	want := map[string]string{}
	for queue, arn := range map[string]string{"TasksQueue": topic, "OrderedQueue": ordered} {
		want[queue] = `{"Action":"sqs:SendMessage","Condition":{"ArnEquals":{"aws:SourceArn":["` + arn + `"]}},"Effect":"Allow","Principal":{"Service":"sns.amazonaws.com"},"Resource":{"Fn::GetAtt":["` + queue + `","Arn"]}}`
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who may send (-want +got):\n%s", diff)
	}
	for _, prefix := range []string{"Worker", "DLQAlarm"} {
		_, f := only(t, template, "AWS::Lambda::Function", prefix)
		if got := at(f.Properties["Environment"], "Variables", "ALLOWED_TOPICS"); got != topic+","+ordered {
			t.Errorf("%s is told of %v", prefix, got)
		}
	}
	if got := template.Outputs[topology.OutputAllowedTopics].Value; got != topic+","+ordered {
		t.Errorf("agentctl is told of %v", got)
	}
}

// However many topics there are, a queue's policy stays within what SQS takes: 20 statements, 10 conditions, 8,192 bytes.
// Source: Amazon SQS Developer Guide, "Amazon SQS policy quotas".
func TestManyAllowedTopics(t *testing.T) {
	var topics []string
	for i := range 40 {
		topics = append(topics, fmt.Sprintf("arn:aws:sns:eu-west-1:123456789012:jobs-%d", i))
	}
	template := templateOf(t, map[string]any{"allowedTopics": strings.Join(topics, ",")})
	_, policy := only(t, template, "AWS::SQS::QueuePolicy", "TasksQueue")
	document := text(t, policy.Properties["PolicyDocument"])
	for _, topic := range topics {
		if !strings.Contains(document, `"`+topic+`"`) {
			t.Errorf("%s may not send", topic)
		}
	}
	if n := len(at(policy.Properties["PolicyDocument"], "Statement").([]any)); n != 2 || len(document) > 8192 {
		t.Errorf("got %d statements in %d bytes, want that without TLS and that of the topics, in 8,192 at most", n, len(document))
	}
}
