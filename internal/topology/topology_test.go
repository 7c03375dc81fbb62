package topology_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/topology"
)

const day = 24 * time.Hour

// What README and the deployed stack are documented to have.
func TestDefaultNumbers(t *testing.T) {
	t.Parallel()
	want := topology.Stack{
		Worker:   topology.Function{Name: "worker", Timeout: 60 * time.Second, MemoryMiB: 256},
		Submit:   topology.Function{Name: "submit", Timeout: 29 * time.Second, MemoryMiB: 256},
		DLQAlarm: topology.Function{Name: "dlqalarm", Timeout: 30 * time.Second, MemoryMiB: 256},
		Tasks: topology.TaskQueue{
			Name:            "agent-tasks",
			Queue:           topology.Queue{Visibility: 360 * time.Second, Retention: 7 * day, ReceiveWait: 20 * time.Second},
			DeadLetter:      topology.Queue{Visibility: 60 * time.Second, Retention: 14 * day, ReceiveWait: 20 * time.Second},
			MaxReceiveCount: 5,
			Mapping:         topology.Mapping{BatchSize: 10, MaximumConcurrency: 10, ReportBatchItemFailures: true},
		},
		Ordered: topology.TaskQueue{
			Name:            "agent-tasks-ordered",
			Queue:           topology.Queue{FIFO: true, Visibility: 360 * time.Second, Retention: 7 * day, ReceiveWait: 20 * time.Second},
			DeadLetter:      topology.Queue{FIFO: true, Visibility: 60 * time.Second, Retention: 14 * day, ReceiveWait: 20 * time.Second},
			MaxReceiveCount: 5,
			Mapping:         topology.Mapping{BatchSize: 1, MaximumConcurrency: 10, ReportBatchItemFailures: true},
		},
		TableName:        "agent-checkpoints",
		TopicName:        "agent-dead-letters",
		Retries:          3,
		RecordRetention:  90 * day,
		SweepInterval:    5 * time.Minute,
		AlarmPeriod:      time.Minute,
		MetricsNamespace: "agentworker",
	}
	if diff := cmp.Diff(want, topology.Default()); diff != "" {
		t.Errorf("default stack (-want +got):\n%s", diff)
	}
	if err := topology.Default().Validate(); err != nil {
		t.Errorf("default stack: got %v, want it sound", err)
	}
}

func TestTheCollectorLeavesAFifthOfTheMemory(t *testing.T) {
	t.Parallel()
	want := map[string]string{"GOGC": "200", "GOMEMLIMIT": "409MiB"}
	if diff := cmp.Diff(want, topology.Function{MemoryMiB: 512}.Collector()); diff != "" {
		t.Errorf("of 512 MiB (-want +got):\n%s", diff)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	s := topology.Default()
	got := map[string]string{
		"tasks": s.Tasks.QueueName(), "tasks dlq": s.Tasks.DeadLetterName(), "tasks alarm": s.Tasks.DeadLetterAlarmName(),
		"ordered": s.Ordered.QueueName(), "ordered dlq": s.Ordered.DeadLetterName(), "ordered alarm": s.Ordered.DeadLetterAlarmName(),
	}
	want := map[string]string{
		"tasks": "agent-tasks", "tasks dlq": "agent-tasks-dlq", "tasks alarm": "agent-tasks-dlq-depth",
		"ordered": "agent-tasks-ordered.fifo", "ordered dlq": "agent-tasks-ordered-dlq.fifo", "ordered alarm": "agent-tasks-ordered-dlq-depth",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestAdvisedVisibility(t *testing.T) {
	t.Parallel()
	if got, want := topology.AdvisedVisibility(30*time.Second, 5*time.Second), 185*time.Second; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Routes are "METHOD /path" with whole segments as parameters, each once.
func TestRoutes(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^(GET|POST) (/|(/([a-z]+(\.json)?|\{[a-z_]+\}))+)$`)
	routes := topology.Routes()
	for _, r := range routes {
		if !form.MatchString(r) {
			t.Errorf("route %q does not have API Gateway's form", r)
		}
	}
	sorted := slices.Sorted(slices.Values(routes))
	if unique := slices.Compact(slices.Clone(sorted)); len(unique) != len(routes) {
		t.Errorf("a route is there twice: %q", sorted)
	}
	topology.Routes()[0] = "changed"
	if topology.Routes()[0] == "changed" {
		t.Error("a caller can change the routes of others")
	}
}
