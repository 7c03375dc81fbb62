package topology_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/topology"
)

// Each rule, broken alone, gives one sentence that names what is wrong and says what to set.
//
// Case: throttle -> DLQ (maxReceiveCount)
// Case: DLQ retention
// Case: mapping not opted in
func TestEachRuleGivesOneSentence(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*topology.Stack)
		want   string
	}{
		"worker timeout of 0": {
			func(s *topology.Stack) { s.Worker.Timeout = 0 },
			"worker: timeout is 0s; set whole seconds from 1s to 15m0s",
		},
		"worker timeout over 15 min": {
			func(s *topology.Stack) { s.Worker.Timeout = 901 * time.Second; visibility(s, 6*901*time.Second) },
			"worker: timeout is 15m1s; set whole seconds from 1s to 15m0s",
		},
		"worker timeout with a fraction": {
			func(s *topology.Stack) { s.Worker.Timeout = 1500 * time.Millisecond },
			"worker: timeout is 1.5s; set whole seconds from 1s to 15m0s",
		},
		"submit timeout of 0": {
			func(s *topology.Stack) { s.Submit.Timeout = 0 },
			"submit: timeout is 0s; set whole seconds from 1s to 15m0s",
		},
		"submit slower than API Gateway": {
			func(s *topology.Stack) { s.Submit.Timeout = 31 * time.Second },
			"submit: timeout is 31s; set at most 30s, since API Gateway does not wait longer",
		},
		"dlqalarm timeout": {
			func(s *topology.Stack) { s.DLQAlarm.Timeout = time.Hour },
			"dlqalarm: timeout is 1h0m0s; set whole seconds from 1s to 15m0s",
		},
		"little memory": {
			func(s *topology.Stack) { s.Worker.MemoryMiB = 127 },
			"worker: memory is 127 MiB; set 128 to 10,240 MiB",
		},
		"much memory": {
			func(s *topology.Stack) { s.DLQAlarm.MemoryMiB = 10241 },
			"dlqalarm: memory is 10241 MiB; set 128 to 10,240 MiB",
		},
		"submit memory": {
			func(s *topology.Stack) { s.Submit.MemoryMiB = 0 },
			"submit: memory is 0 MiB; set 128 to 10,240 MiB",
		},
		"function without a name": {
			func(s *topology.Stack) { s.DLQAlarm.Name = "" },
			`function name is ""; set 1 to 64 letters, digits, - and _`,
		},
		"queue with its suffix": {
			func(s *topology.Stack) { s.Ordered.Name = "jobs.fifo" },
			`queue name is "jobs.fifo"; set 1 to 71 letters, digits, - and _; -dlq and .fifo are put behind it`,
		},
		"queue with a long name": {
			func(s *topology.Stack) { s.Tasks.Name = strings.Repeat("q", 72) },
			`queue name is "` + strings.Repeat("q", 72) + `"; set 1 to 71 letters, digits, - and _; -dlq and .fifo are put behind it`,
		},
		"one name for both queues": {
			func(s *topology.Stack) { s.Tasks.Name = "jobs"; s.Ordered.Name = "jobs" },
			`both queues are called "jobs"; set two names`,
		},
		"retries": {
			func(s *topology.Stack) { s.Retries = -1 },
			"retries are -1; set 0 to 100",
		},
		"more retries than the worker takes": {
			func(s *topology.Stack) {
				s.Retries, s.Tasks.MaxReceiveCount, s.Ordered.MaxReceiveCount = 101, 200, 200
			},
			"retries are 101; set 0 to 100",
		},
		"visibility over 12 h": {
			func(s *topology.Stack) { s.Tasks.Queue.Visibility = 12*time.Hour + time.Second },
			"agent-tasks: visibility timeout is 12h0m1s; set whole seconds from 0s to 12h0m0s",
		},
		"visibility under six times the timeout": {
			func(s *topology.Stack) { s.Tasks.Queue.Visibility = 359 * time.Second },
			"agent-tasks: visibility timeout is 5m59s; set at least 6m0s, six times the worker's timeout and the batching window, or a message comes back while it is being worked on",
		},
		"the window counts": {
			func(s *topology.Stack) { s.Tasks.Mapping.BatchingWindow = time.Second },
			"agent-tasks: visibility timeout is 6m0s; set at least 6m1s, six times the worker's timeout and the batching window, or a message comes back while it is being worked on",
		},
		"ordered visibility": {
			func(s *topology.Stack) { s.Ordered.Queue.Visibility = time.Minute },
			"agent-tasks-ordered: visibility timeout is 1m0s; set at least 6m0s, six times the worker's timeout and the batching window, or a message comes back while it is being worked on",
		},
		"retention under 1 min": {
			func(s *topology.Stack) { s.Tasks.Queue.Retention = 59 * time.Second },
			"agent-tasks: retention is 59s; set whole seconds from 1m0s to 336h0m0s",
		},
		"dead-letter visibility": {
			func(s *topology.Stack) { s.Tasks.DeadLetter.Visibility = 13 * time.Hour },
			"agent-tasks: dead-letter queue's visibility timeout is 13h0m0s; set whole seconds from 0s to 12h0m0s",
		},
		"dead-letter retention over 14 days": {
			func(s *topology.Stack) { s.Ordered.DeadLetter.Retention = 15 * day },
			"agent-tasks-ordered: dead-letter queue's retention is 360h0m0s; set whole seconds from 1m0s to 336h0m0s",
		},
		"dead-letter retention no longer than the queue's": {
			func(s *topology.Stack) { s.Tasks.DeadLetter.Retention = 7 * day },
			"agent-tasks: dead-letter queue keeps messages for 168h0m0s; set more than the queue's 168h0m0s, since the time in the queue counts",
		},
		"a message expires before its last delivery": {
			func(s *topology.Stack) { s.Tasks.Queue.Retention, s.Tasks.MaxReceiveCount = day, 240 },
			"agent-tasks: 240 deliveries, each of which may take the visibility timeout of 6m0s, need 24h0m0s, and the queue keeps a message for 24h0m0s; " +
				"set a longer retention or a smaller max receive count, or a message expires instead of being dead-lettered",
		},
		"long poll": {
			func(s *topology.Stack) { s.Tasks.Queue.ReceiveWait = 21 * time.Second },
			"agent-tasks: receive wait is 21s; set whole seconds from 0s to 20s",
		},
		"long poll of the dead-letter queue": {
			func(s *topology.Stack) { s.Ordered.DeadLetter.ReceiveWait = -time.Second },
			"agent-tasks-ordered: dead-letter queue's receive wait is -1s; set whole seconds from 0s to 20s",
		},
		"few receives": {
			func(s *topology.Stack) { s.Tasks.MaxReceiveCount, s.Retries = 4, 2 },
			"agent-tasks: max receive count is 4; set 5 to 1,000, or throttling sends healthy messages to the dead-letter queue",
		},
		"many receives": {
			func(s *topology.Stack) { s.Ordered.MaxReceiveCount = 1001 },
			"agent-tasks-ordered: max receive count is 1001; set 5 to 1,000, or throttling sends healthy messages to the dead-letter queue",
		},
		"as many tries as receives": {
			func(s *topology.Stack) { s.Retries, s.Ordered.MaxReceiveCount = 4, 6 },
			"agent-tasks: max receive count is 5; set more than the worker's 5 tries, so that a throttle or a crash takes none of them",
		},
		"dead-letter queue of another type": {
			func(s *topology.Stack) { s.Ordered.DeadLetter.FIFO = false },
			"agent-tasks-ordered: its dead-letter queue is of another type; make both FIFO or both standard",
		},
		"tasks FIFO": {
			func(s *topology.Stack) { s.Tasks.Queue.FIFO, s.Tasks.DeadLetter.FIFO = true, true },
			"agent-tasks: must be a standard queue",
		},
		"ordered standard": {
			func(s *topology.Stack) { s.Ordered.Queue.FIFO, s.Ordered.DeadLetter.FIFO = false, false },
			"agent-tasks-ordered: must be a FIFO queue",
		},
		"records shorter than messages": {
			func(s *topology.Stack) { s.RecordRetention = 21 * day },
			"records are kept for 504h0m0s; keep them longer than a message can live in a queue and its dead-letter queue, 504h0m0s, or a redriven task would run twice",
		},
		"records shorter than ordered messages": {
			func(s *topology.Stack) { s.Ordered.Queue.Retention, s.RecordRetention = 8*day, 22*day },
			"records are kept for 528h0m0s; keep them longer than a message can live in a queue and its dead-letter queue, 528h0m0s, or a redriven task would run twice",
		},
		"sweep": {
			func(s *topology.Stack) { s.SweepInterval = 59 * time.Second },
			"sweep interval is 59s; set at least 1m",
		},
		"alarm period of 0": {
			func(s *topology.Stack) { s.AlarmPeriod = 0 },
			"alarm period is 0s; set whole minutes from 1m, since SQS reports a queue's depth once a minute",
		},
		"alarm period with a fraction": {
			func(s *topology.Stack) { s.AlarmPeriod = 90 * time.Second },
			"alarm period is 1m30s; set whole minutes from 1m, since SQS reports a queue's depth once a minute",
		},
		"namespace": {
			func(s *topology.Stack) { s.MetricsNamespace = "" },
			"metrics namespace is empty; name one",
		},
		"failures not reported": {
			func(s *topology.Stack) { s.Tasks.Mapping.ReportBatchItemFailures = false },
			"agent-tasks: the mapping does not report batch item failures; turn it on, or failed messages are deleted",
		},
		"concurrency of 1": {
			func(s *topology.Stack) { s.Ordered.Mapping.MaximumConcurrency = 1 },
			"agent-tasks-ordered: maximum concurrency is 1; set 2 to 1,000",
		},
		"concurrency of 1,001": {
			func(s *topology.Stack) { s.Tasks.Mapping.MaximumConcurrency = 1001 },
			"agent-tasks: maximum concurrency is 1001; set 2 to 1,000",
		},
		"long window": {
			func(s *topology.Stack) {
				s.Tasks.Mapping.BatchingWindow = 301 * time.Second
				visibility(s, 661*time.Second)
			},
			"agent-tasks: batching window is 5m1s; set whole seconds from 0s to 5m0s",
		},
		"window of a FIFO queue": {
			func(s *topology.Stack) {
				s.Ordered.Mapping.BatchingWindow = time.Second
				visibility(s, 361*time.Second)
			},
			"agent-tasks-ordered: batching window is 1s; set none for a FIFO queue",
		},
		"no batch": {
			func(s *topology.Stack) { s.Tasks.Mapping.BatchSize = 0 },
			"agent-tasks: batch size is 0; set 1 to 10,000",
		},
		"huge batch": {
			func(s *topology.Stack) { largeBatch(s, 10_001) },
			"agent-tasks: batch size is 10001; set 1 to 10,000",
		},
		"large batch without a window": {
			func(s *topology.Stack) { s.Tasks.Mapping.BatchSize = 11 },
			"agent-tasks: batch size is 11 without a batching window; set a window of at least 1s, or at most 10 records",
		},
		"no batch of a FIFO queue": {
			func(s *topology.Stack) { s.Ordered.Mapping.BatchSize = 0 },
			"agent-tasks-ordered: batch size is 0; set 1 to 10 for a FIFO queue",
		},
		"large batch of a FIFO queue": {
			func(s *topology.Stack) { s.Ordered.Mapping.BatchSize = 11 },
			"agent-tasks-ordered: batch size is 11; set 1 to 10 for a FIFO queue",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := topology.Default()
			tt.change(&s)
			err := s.Validate()
			if err == nil {
				t.Fatalf("got no error, want %q", tt.want)
			}
			if diff := cmp.Diff([]string{tt.want}, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("sentences (-want +got):\n%s", diff)
			}
		})
	}
}

func visibility(s *topology.Stack, d time.Duration) {
	s.Tasks.Queue.Visibility, s.Ordered.Queue.Visibility = d, d
}

func largeBatch(s *topology.Stack, size int) {
	s.Tasks.Mapping.BatchSize, s.Tasks.Mapping.BatchingWindow = size, time.Second
	s.Tasks.Queue.Visibility = 361 * time.Second
}

// The limits themselves are allowed.
func TestLimitsAreSound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*topology.Stack){
		"largest batch": func(s *topology.Stack) { largeBatch(s, 10_000) },
		"longest timeout": func(s *topology.Stack) {
			s.Worker.Timeout, s.Submit.Timeout, s.DLQAlarm.Timeout = 15*time.Minute, 30*time.Second, 15*time.Minute
			visibility(s, 90*time.Minute)
		},
		"shortest timeout":   func(s *topology.Stack) { s.Worker.Timeout = time.Second; visibility(s, 6*time.Second) },
		"longest visibility": func(s *topology.Stack) { visibility(s, 12*time.Hour) },
		"largest memory":     func(s *topology.Stack) { s.Worker.MemoryMiB = 10240 },
		"least memory":       func(s *topology.Stack) { s.Worker.MemoryMiB = 128 },
		"no retries":         func(s *topology.Stack) { s.Retries = 0 },
		"many receives":      func(s *topology.Stack) { s.Tasks.MaxReceiveCount, s.Retries = 1000, 3 },
		"last delivery in time": func(s *topology.Stack) {
			s.Tasks.Queue.Retention, s.Tasks.MaxReceiveCount = day, 239
		},
		"many retries": func(s *topology.Stack) {
			s.Retries, s.Tasks.MaxReceiveCount, s.Ordered.MaxReceiveCount = 100, 102, 102
		},
		"short poll":          func(s *topology.Stack) { s.Tasks.Queue.ReceiveWait = 0 },
		"ordered batch of 10": func(s *topology.Stack) { s.Ordered.Mapping.BatchSize = 10 },
		"concurrency": func(s *topology.Stack) {
			s.Tasks.Mapping.MaximumConcurrency, s.Ordered.Mapping.MaximumConcurrency = 2, 1000
		},
		"longest window": func(s *topology.Stack) {
			s.Tasks.Mapping.BatchingWindow = 5 * time.Minute
			visibility(s, 11*time.Minute)
		},
		"long names": func(s *topology.Stack) {
			s.Worker.Name, s.Ordered.Name = strings.Repeat("w", 64), strings.Repeat("q", 71)
			if n := len(s.Ordered.DeadLetterName()); n != 80 {
				t.Errorf("longest name of a dead-letter queue: got %d characters, want SQS's 80", n)
			}
		},
		"slow alarm": func(s *topology.Stack) { s.AlarmPeriod = 5 * time.Minute },
	} {
		s := topology.Default()
		change(&s)
		if err := s.Validate(); err != nil {
			t.Errorf("%s: got %v, want it sound", name, err)
		}
	}
}

func TestEveryProblemIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := topology.Default()
	s.Worker.MemoryMiB = 0
	s.Tasks.Mapping.ReportBatchItemFailures = false
	s.Ordered.Mapping.BatchSize = 100
	s.Ordered.Queue.Visibility = time.Second
	s.SweepInterval = 0
	s.MetricsNamespace = ""
	err := s.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	got := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		"worker: memory", "agent-tasks: the mapping", "agent-tasks-ordered: batch size", "agent-tasks-ordered: visibility timeout",
		"sweep interval", "metrics namespace",
	} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("got %q, want also a sentence about %s", got, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("got %d sentences, want 6: %q", len(got), got)
	}
	if err := (topology.Stack{}).Validate(); err == nil {
		t.Error("the zero value: got no error")
	}
}
