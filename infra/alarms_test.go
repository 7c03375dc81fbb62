package main_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/telemetry"
)

// alarm is what matters of one: on what, when, and what it sets off.
type alarm struct {
	Metric    string
	Dimension string // name=logical id
	Statistic string
	Period    float64
	Threshold float64
	Action    string // the logical id of a function or a topic
}

// Every alarm watches the resource that its name says, and what it does leads to people.
func TestAlarms(t *testing.T) {
	template := byDefault(t)
	worker, _ := only(t, template, "AWS::Lambda::Function", "Worker")
	dlqalarm, _ := only(t, template, "AWS::Lambda::Function", "DLQAlarm")
	want := map[string]alarm{
		"dev-agent-tasks-dlq-depth":         {"AWS/SQS ApproximateNumberOfMessagesVisible", "QueueName=TasksDeadLetterQueue", "Maximum", 60, 1, dlqalarm},
		"dev-agent-tasks-ordered-dlq-depth": {"AWS/SQS ApproximateNumberOfMessagesVisible", "QueueName=OrderedDeadLetterQueue", "Maximum", 60, 1, dlqalarm},
		"dev-agent-tasks-age":               {"AWS/SQS ApproximateAgeOfOldestMessage", "QueueName=TasksQueue", "Maximum", 60, 1800, "Topic"},
		"dev-agent-tasks-ordered-age":       {"AWS/SQS ApproximateAgeOfOldestMessage", "QueueName=OrderedQueue", "Maximum", 60, 1800, "Topic"},
		"dev-will-dead-letter":              {"agentworker/dev " + string(telemetry.WillDeadLetter), "", "Sum", 60, 1, dlqalarm},
		"dev-worker-errors":                 {"AWS/Lambda Errors", "FunctionName=" + worker, "Sum", 300, 1, "Topic"},
		"dev-worker-throttles":              {"AWS/Lambda Throttles", "FunctionName=" + worker, "Sum", 300, 1, "Topic"},
		"dev-worker-duration":               {"AWS/Lambda Duration", "FunctionName=" + worker, "Maximum", 300, 54000, "Topic"},
		"dev-api-5xx":                       {"AWS/ApiGateway 5xx", "ApiId=Api", "Sum", 300, 1, "Topic"},
		"dev-dlqalarm-errors":               {"AWS/Lambda Errors", "FunctionName=" + dlqalarm, "Sum", 300, 1, "Topic"},
	}
	got := map[string]alarm{}
	for _, id := range ofType(template, "AWS::CloudWatch::Alarm") {
		p := template.Resources[id].Properties
		a := alarm{
			Metric: p["Namespace"].(string) + " " + p["MetricName"].(string), Statistic: p["Statistic"].(string),
			Period: p["Period"].(float64), Threshold: p["Threshold"].(float64), Action: target(t, p["AlarmActions"]),
		}
		if dimensions, _ := p["Dimensions"].([]any); len(dimensions) > 0 {
			a.Dimension = at(dimensions[0], "Name").(string) + "=" + target(t, []any{at(dimensions[0], "Value")})
		}
		name := p["AlarmName"].(string)
		got[name] = a
		for property, value := range map[string]any{
			"ComparisonOperator": "GreaterThanOrEqualToThreshold", "EvaluationPeriods": 1.0, "TreatMissingData": "notBreaching",
		} {
			if p[property] != value {
				t.Errorf("%s: %s is %v, want %v", name, property, p[property], value)
			}
		}
		// People hear as well when it is over.
		if diff := cmp.Diff(p["AlarmActions"], p["OKActions"]); diff != "" {
			t.Errorf("%s: actions when it goes off and when it is over (-off +over):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alarms (-want +got):\n%s", diff)
	}
}

// target is the logical id of the one resource in a list.
func target(t *testing.T, list any) string {
	t.Helper()
	l, _ := list.([]any)
	if len(l) != 1 {
		t.Fatalf("got %s, want one reference", text(t, list))
	}
	if ref, ok := at(l[0], "Ref").(string); ok {
		return ref
	}
	return at(l[0], "Fn::GetAtt").([]any)[0].(string)
}

// Without the permission an alarm's call of a function fails where nobody looks.
func TestAlarmsMayInvoke(t *testing.T) {
	template := byDefault(t)
	dlqalarm, _ := only(t, template, "AWS::Lambda::Function", "DLQAlarm")
	permitted := map[string]bool{}
	for _, id := range ofType(template, "AWS::Lambda::Permission") {
		p := template.Resources[id].Properties
		if p["Principal"] == "lambda.alarms.cloudwatch.amazonaws.com" && p["Action"] == "lambda:InvokeFunction" &&
			at(p["SourceAccount"], "Ref") == "AWS::AccountId" && target(t, []any{p["FunctionName"]}) == dlqalarm {
			permitted[target(t, []any{p["SourceArn"]})] = true
		}
	}
	for _, id := range ofType(template, "AWS::CloudWatch::Alarm") {
		if p := template.Resources[id].Properties; target(t, p["AlarmActions"]) == dlqalarm && !permitted[id] {
			t.Errorf("%v may not invoke dlqalarm", p["AlarmName"])
		}
	}
}

// An alarm's name, without its stage, is a heading in the README below "Alarms", and its description says so. Every such
// heading is an alarm's.
func TestAlarmsAreHeadingsInTheReadme(t *testing.T) {
	for _, stage := range []string{"dev", "prod-eu-1"} {
		template := templateOf(t, map[string]any{"stage": stage})
		var headings, names []string
		for _, m := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(section(t, "Alarms"), -1) {
			headings = append(headings, m[1])
		}
		for _, id := range ofType(template, "AWS::CloudWatch::Alarm") {
			p := template.Resources[id].Properties
			name, ok := strings.CutPrefix(p["AlarmName"].(string), stage+"-")
			if !ok {
				t.Errorf("%v does not begin with its stage, %s", p["AlarmName"], stage)
			}
			names = append(names, name)
			if description := p["AlarmDescription"].(string); !strings.HasSuffix(description, `What to do: README, "`+name+`".`) {
				t.Errorf("%s: description does not lead to the heading: %s", name, description)
			}
		}
		slices.Sort(headings)
		slices.Sort(names)
		if diff := cmp.Diff(names, headings); diff != "" {
			t.Errorf("stage %s: alarms and headings (-alarms +headings):\n%s", stage, diff)
		}
	}
}

// Each heading answers the five questions of whoever was woken by it.
func TestAlarmHeadingsSayWhatToDo(t *testing.T) {
	for _, part := range strings.Split(section(t, "Alarms"), "\n### ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		answers := strings.Split(body, "\n- **")[1:]
		for i, question := range []string{"Means**: ", "Look first at** ", "Shows it**: ", "Mends it**: ", "Do nothing** "} {
			if i >= len(answers) || !strings.HasPrefix(answers[i], question) || len(strings.Fields(answers[i])) < 8 {
				t.Errorf("%s does not answer %q at its place", heading, question)
			}
		}
		if len(answers) != 5 || !strings.Contains(body, "`a") {
			t.Errorf("%s has %d answers, want 5, with a command among them", heading, len(answers))
		}
	}
}

// The dashboard shows every alarm, and asks its four questions.
func TestDashboard(t *testing.T) {
	template := byDefault(t)
	_, dashboard := only(t, template, "AWS::CloudWatch::Dashboard", "")
	body := text(t, dashboard.Properties["DashboardBody"])
	for _, id := range ofType(template, "AWS::CloudWatch::Alarm") {
		if !strings.Contains(body, `{"Fn::GetAtt":["`+id+`","Arn"]}`) {
			t.Errorf("%s is not on the dashboard", id)
		}
	}
	for _, question := range []string{"Is it healthy?", "How slow?", "How much?", "What fails?", "What happened to the task?"} {
		if !strings.Contains(body, question) {
			t.Errorf("the dashboard does not ask %q", question)
		}
	}
	for _, id := range ofType(template, "AWS::Logs::LogGroup") {
		if isAccessLog := strings.Contains(id, "AccessLogs"); strings.Contains(body, `{"Ref":"`+id+`"}`) == isAccessLog {
			t.Errorf("log group %s: shown %v, want the functions' logs and only those", id, isAccessLog)
		}
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(string(readme), "    fields @timestamp")
	query, _, _ = strings.Cut("    fields @timestamp"+query, "\n\n")
	for line := range strings.SplitSeq(query, "\n") {
		if line = strings.TrimSpace(line); !strings.Contains(body, line) {
			t.Errorf("the README's query has %q, the dashboard's does not", line)
		}
	}
}
