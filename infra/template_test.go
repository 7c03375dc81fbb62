package main_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infra "agentworker/infra"
)

func TestDefaultTemplateIsSound(t *testing.T) {
	if err := byDefault(t).Validate(); err != nil {
		t.Errorf("got %v, want no problem", err)
	}
}

// What the settings cannot say, code can: the template is judged as it goes out.
func TestTemplateIsRefused(t *testing.T) {
	set := func(id, property string, value any) func(infra.Template) {
		return func(t infra.Template) { t.Resources[id].Properties[property] = value }
	}
	mapping, _ := only(t, byDefault(t), "AWS::Lambda::EventSourceMapping", "Tasks")
	ordered, _ := only(t, byDefault(t), "AWS::Lambda::EventSourceMapping", "Ordered")
	depth, _ := only(t, byDefault(t), "AWS::CloudWatch::Alarm", "AlarmsTasksDepth")
	tests := map[string]struct {
		change func(infra.Template)
		want   []string
	}{
		"visibility below six times the timeout": {
			set("TasksQueue", "VisibilityTimeout", 359.0),
			[]string{mapping + ": visibility timeout of TasksQueue is 359 s; set at least 360 s, six times the function's timeout and the batching window, or a message comes back while it is being worked on"},
		},
		"visibility that AWS sets": {
			func(t infra.Template) { delete(t.Resources["OrderedQueue"].Properties, "VisibilityTimeout") },
			[]string{ordered + ": visibility timeout of OrderedQueue is 30 s; set at least 360 s, six times the function's timeout and the batching window, or a message comes back while it is being worked on"},
		},
		"few receives": {
			func(t infra.Template) {
				t.Resources["TasksQueue"].Properties["RedrivePolicy"].(map[string]any)["maxReceiveCount"] = 1.0
			},
			[]string{"TasksQueue: max receive count is 1; set at least 5, or throttling sends healthy messages to the dead-letter queue"},
		},
		"dead letters expire first": {
			set("TasksDeadLetterQueue", "MessageRetentionPeriod", 604800.0),
			[]string{"TasksQueue: dead-letter queue TasksDeadLetterQueue keeps messages for 604800 s; set more than the queue's 604800 s, since the time in the queue counts"},
		},
		"dead-letter queue of another type": {
			func(t infra.Template) { delete(t.Resources["OrderedDeadLetterQueue"].Properties, "FifoQueue") },
			[]string{"OrderedQueue: dead-letter queue OrderedDeadLetterQueue is of another type; make both FIFO or both standard"},
		},
		"dead-letter queue of somebody else": {
			func(t infra.Template) {
				t.Resources["TasksQueue"].Properties["RedrivePolicy"].(map[string]any)["deadLetterTargetArn"] = "arn:aws:sqs:eu-west-1:123456789012:other"
			},
			[]string{depth + `: the alarm on the dead letters' depth watches "TasksDeadLetterQueue", which is no dead-letter queue; set the queue's own dead-letter queue`, "TasksQueue: its dead-letter queue is not in this stack; make one"},
		},
		"no partial batch responses": {
			func(t infra.Template) { delete(t.Resources[mapping].Properties, "FunctionResponseTypes") },
			[]string{mapping + ": the mapping does not report batch item failures; turn it on, or failed messages are deleted"},
		},
		"large FIFO batch": {
			set(ordered, "BatchSize", 11.0),
			[]string{ordered + ": batch size is 11; set at most 10 for a FIFO queue"},
		},
		"FIFO window": {
			func(t infra.Template) {
				set(ordered, "MaximumBatchingWindowInSeconds", 1.0)(t)
				set("OrderedQueue", "VisibilityTimeout", 361.0)(t)
			},
			[]string{ordered + ": batching window is 1 s; set none for a FIFO queue"},
		},
		"large batch without a window": {
			set(mapping, "BatchSize", 11.0),
			[]string{mapping + ": batch size is 11 without a batching window; set a window of at least 1 s, or at most 10 records"},
		},
		"filter": {
			set(mapping, "FilterCriteria", map[string]any{"Filters": []any{}}),
			[]string{mapping + ": the mapping filters; take the filter away, since what it leaves out is deleted"},
		},
		"concurrency of 1": {
			set(mapping, "ScalingConfig", map[string]any{"MaximumConcurrency": 1.0}),
			[]string{mapping + ": maximum concurrency is 1; set at least 2"},
		},
		"concurrency and pollers": {
			set(mapping, "ProvisionedPollerConfig", map[string]any{"MinimumPollers": 2.0}),
			[]string{mapping + ": both maximum concurrency and provisioned pollers are set, and they exclude each other; set one of them"},
		},
		"alarm on another queue": {
			func(t infra.Template) {
				d := t.Resources[depth].Properties["Dimensions"].([]any)[0].(map[string]any)
				d["Value"] = map[string]any{"Fn::GetAtt": []any{"TasksQueue", "QueueName"}}
			},
			[]string{
				depth + `: the alarm on the dead letters' depth watches "TasksQueue", which is no dead-letter queue; set the queue's own dead-letter queue`,
				"TasksDeadLetterQueue: no alarm watches the dead-letter queue's depth; make one",
			},
		},
		"alarm on the other dead-letter queue": {
			func(t infra.Template) {
				d := t.Resources[depth].Properties["Dimensions"].([]any)[0].(map[string]any)
				d["Value"] = map[string]any{"Fn::GetAtt": []any{"OrderedDeadLetterQueue", "QueueName"}}
			},
			[]string{"TasksDeadLetterQueue: no alarm watches the dead-letter queue's depth; make one"},
		},
		"all at once": {
			func(t infra.Template) {
				set("TasksQueue", "VisibilityTimeout", 60.0)(t)
				set(ordered, "BatchSize", 11.0)(t)
			},
			[]string{
				ordered + ": batch size is 11; set at most 10 for a FIFO queue",
				mapping + ": visibility timeout of TasksQueue is 60 s; set at least 360 s, six times the function's timeout and the batching window, or a message comes back while it is being worked on",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template := byDefault(t)
			test.change(template)
			err := template.Validate()
			if err == nil {
				t.Fatalf("no problem, want %q", test.want)
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
