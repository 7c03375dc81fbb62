package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Template is what is handed to CloudFormation. It is judged once more after it has been made: whatever part of the app
// has put a queue, a mapping or an alarm into it, and by whatever means.
type Template struct {
	Resources map[string]Resource
	Outputs   map[string]struct{ Value any }
}

// Resource is one resource of a template.
type Resource struct {
	Type                                string
	Properties                          map[string]any
	DeletionPolicy, UpdateReplacePolicy string
	DependsOn                           any
	Metadata                            map[string]any
}

// Validate reports every queue, mapping and alarm that AWS would refuse or that would lose messages, each in a
// sentence that says what to change.
func (t Template) Validate() error {
	var problems []error
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		switch r := t.Resources[id]; r.Type {
		case "AWS::SQS::Queue":
			problems = append(problems, t.queue(id, r)...)
		case "AWS::Lambda::EventSourceMapping":
			problems = append(problems, t.mapping(id, r)...)
		case "AWS::CloudWatch::Alarm":
			problems = append(problems, t.alarm(id, r)...)
		}
	}
	return errors.Join(append(problems, t.unwatched()...)...)
}

// queue judges a queue together with its dead-letter queue.
func (t Template) queue(id string, r Resource) (problems []error) {
	policy, ok := r.Properties["RedrivePolicy"].(map[string]any)
	if !ok {
		return nil
	}
	if n := number(policy["maxReceiveCount"], 0); n < 5 {
		problems = append(problems, fmt.Errorf("%s: max receive count is %v; set at least 5, or throttling sends healthy messages to the dead-letter queue", id, n))
	}
	target := referred(policy["deadLetterTargetArn"])
	dead, ok := t.Resources[target]
	if !ok {
		return append(problems, fmt.Errorf("%s: its dead-letter queue is not in this stack; make one", id))
	}
	if fifo(r) != fifo(dead) {
		problems = append(problems, fmt.Errorf("%s: dead-letter queue %s is of another type; make both FIFO or both standard", id, target))
	}
	keeps, deadKeeps := number(r.Properties["MessageRetentionPeriod"], 345600), number(dead.Properties["MessageRetentionPeriod"], 345600)
	if deadKeeps <= keeps {
		problems = append(problems, fmt.Errorf("%s: dead-letter queue %s keeps messages for %v s; set more than the queue's %v s, since the time in the queue counts", id, target, deadKeeps, keeps))
	}
	return problems
}

// mapping judges a mapping together with its queue and its function.
func (t Template) mapping(id string, r Resource) (problems []error) {
	source := referred(r.Properties["EventSourceArn"])
	queue, ok := t.Resources[source]
	if !ok || queue.Type != "AWS::SQS::Queue" {
		return nil
	}
	refuse := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(id+": "+format, args...))
	}
	p := r.Properties
	if types, _ := p["FunctionResponseTypes"].([]any); !slices.Contains(types, any("ReportBatchItemFailures")) {
		refuse("the mapping does not report batch item failures; turn it on, or failed messages are deleted")
	}
	size, window := number(p["BatchSize"], 10), number(p["MaximumBatchingWindowInSeconds"], 0)
	switch {
	case fifo(queue) && size > 10:
		refuse("batch size is %v; set at most 10 for a FIFO queue", size)
	case fifo(queue) && window > 0:
		refuse("batching window is %v s; set none for a FIFO queue", window)
	case size > 10 && window < 1:
		refuse("batch size is %v without a batching window; set a window of at least 1 s, or at most 10 records", size)
	}
	if p["FilterCriteria"] != nil {
		refuse("the mapping filters; take the filter away, since what it leaves out is deleted")
	}
	if concurrency, set := concurrencyOf(p); set {
		if concurrency < 2 {
			refuse("maximum concurrency is %v; set at least 2", concurrency)
		}
		if p["ProvisionedPollerConfig"] != nil {
			refuse("both maximum concurrency and provisioned pollers are set, and they exclude each other; set one of them")
		}
	}
	function := t.Resources[referred(p["FunctionName"])]
	least := 6*number(function.Properties["Timeout"], 3) + window
	if visibility := number(queue.Properties["VisibilityTimeout"], 30); visibility < least {
		refuse("visibility timeout of %s is %v s; set at least %v s, six times the function's timeout and the batching window, or a message comes back while it is being worked on", source, visibility, least)
	}
	return problems
}

// alarm refuses one on messages that are not dead letters: an alarm that watches the wrong queue never goes off.
func (t Template) alarm(id string, r Resource) []error {
	if r.Properties["MetricName"] != depthMetric {
		return nil
	}
	watched := watchedQueue(r)
	if !slices.Contains(t.deadLetterQueues(), watched) {
		return []error{fmt.Errorf("%s: the alarm on the dead letters' depth watches %q, which is no dead-letter queue; set the queue's own dead-letter queue", id, watched)}
	}
	return nil
}

// unwatched are dead-letter queues without an alarm.
func (t Template) unwatched() (problems []error) {
	watched := map[string]bool{}
	for _, r := range t.Resources {
		if r.Type == "AWS::CloudWatch::Alarm" && r.Properties["MetricName"] == depthMetric {
			watched[watchedQueue(r)] = true
		}
	}
	for _, id := range t.deadLetterQueues() {
		if !watched[id] {
			problems = append(problems, fmt.Errorf("%s: no alarm watches the dead-letter queue's depth; make one", id))
		}
	}
	return problems
}

const depthMetric = "ApproximateNumberOfMessagesVisible"

func (t Template) deadLetterQueues() []string {
	ids := map[string]bool{}
	for _, r := range t.Resources {
		if policy, ok := r.Properties["RedrivePolicy"].(map[string]any); ok && r.Type == "AWS::SQS::Queue" {
			ids[referred(policy["deadLetterTargetArn"])] = true
		}
	}
	delete(ids, "")
	return slices.Sorted(maps.Keys(ids))
}

func watchedQueue(alarm Resource) string {
	dimensions, _ := alarm.Properties["Dimensions"].([]any)
	for _, d := range dimensions {
		if d, ok := d.(map[string]any); ok && d["Name"] == "QueueName" {
			return referred(d["Value"])
		}
	}
	return ""
}

func concurrencyOf(mapping map[string]any) (n float64, set bool) {
	scaling, ok := mapping["ScalingConfig"].(map[string]any)
	if !ok || scaling["MaximumConcurrency"] == nil {
		return 0, false
	}
	return number(scaling["MaximumConcurrency"], 0), true
}

func fifo(queue Resource) bool { return queue.Properties["FifoQueue"] == true }

// number is a property's value, or what the service takes where it is not set.
func number(v any, unset float64) float64 {
	if n, ok := v.(float64); ok {
		return n
	}
	return unset
}

// referred is the logical id that Ref or Fn::GetAtt names, "" for anything else.
func referred(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	if ref, ok := m["Ref"].(string); ok {
		return ref
	}
	switch at := m["Fn::GetAtt"].(type) {
	case []any:
		if len(at) > 0 {
			id, _ := at[0].(string)
			return id
		}
	case string:
		id, _, _ := strings.Cut(at, ".")
		return id
	}
	return ""
}
