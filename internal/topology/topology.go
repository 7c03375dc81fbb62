// Package topology holds every name, number and limit that the deployed stack and the chain on one machine
// have in common, and the rules that make a combination of them sound.
package topology

import (
	"strconv"
	"strings"
	"time"
)

// Stack is the whole system. Its zero value is not usable: start from [Default].
type Stack struct {
	Worker   Function
	Submit   Function
	DLQAlarm Function

	// TableName and TopicName are the names on one machine; the deployed stack has them generated.
	TableName string
	TopicName string

	Tasks   TaskQueue // standard: independent tasks
	Ordered TaskQueue // FIFO: tasks in the order of their thread or ticket

	// Retries is how often the worker tries a task again after a plain error, 0 or more.
	Retries int
	// RecordRetention is how long after its last change a thread's, task's or result's item expires.
	RecordRetention time.Duration
	// SweepInterval is how often the dead-letter queues are looked at without an alarm.
	SweepInterval time.Duration
	// AlarmPeriod is how often CloudWatch looks at a dead-letter queue's depth.
	AlarmPeriod time.Duration
	// MetricsNamespace is the CloudWatch namespace of the functions' own metrics.
	MetricsNamespace string
}

// Function is one Lambda function.
type Function struct {
	Name      string        // also the folder below functions/
	Timeout   time.Duration // whole seconds, 1 s to 15 min
	MemoryMiB int           // 128 to 10,240
}

// Collector are the environment variables that set up Go's garbage collector in the function. It has a small share of a
// processor and memory that nobody else uses: twice as much garbage may pile up as in other programs, which saves the worker
// a sixth of its processor time for 4 MiB. Near the end of the memory it is collected as often as it takes, for up to half of
// the processor, since Lambda kills a function that needs more; a fifth is left for what the collector does not count, such
// as the program itself.
// Source: Go's package runtime, "Environment Variables"; "A Guide to the Go Garbage Collector".
func (f Function) Collector() map[string]string {
	return map[string]string{"GOGC": "200", "GOMEMLIMIT": strconv.Itoa(f.MemoryMiB*4/5) + "MiB"}
}

// TaskQueue is a queue, its dead-letter queue, and the mapping that feeds the worker from it.
type TaskQueue struct {
	Name       string // a FIFO queue's ends in ".fifo", and its dead-letter queue's too
	Queue      Queue
	DeadLetter Queue
	// MaxReceiveCount is how many deliveries a message gets before SQS moves it to the dead-letter queue, 1 to 1,000.
	// Source: Amazon SQS Developer Guide, "Using dead-letter queues".
	MaxReceiveCount int
	Mapping         Mapping
}

// Queue is the settings of one queue.
type Queue struct {
	FIFO bool
	// Visibility is how long a received message stays hidden, in whole seconds, 0 s to 12 h. It must be at
	// least the function's timeout; AWS advises six times that, and the batching window on top.
	// Source: AWS Lambda Developer Guide, "Configuring a queue to use with Lambda".
	Visibility time.Duration
	// Retention is how long a message is kept, 60 s to 14 days, counted from when it was first sent, also
	// in a standard queue's dead-letter queue.
	Retention time.Duration
	// ReceiveWait is the long poll of a consumer that does not ask for one, 0 to 20 s.
	ReceiveWait time.Duration
}

// Mapping is a Lambda event source mapping.
type Mapping struct {
	// BatchSize is 1 to 10,000; at most 10 for a FIFO queue; above 10 only with a window.
	BatchSize int
	// BatchingWindow is how long to wait for a fuller batch, 0 to 300 s; none for a FIFO queue.
	BatchingWindow time.Duration
	// MaximumConcurrency bounds the invocations that run at once, 2 to 1,000. The mapping does not receive what it
	// cannot hand on, so that no message is used up by throttling.
	// Source: AWS Lambda Developer Guide, "Configuring scaling behavior for SQS event source mappings".
	MaximumConcurrency int
	// Pollers, when set, are provisioned: they cost money by the hour, scale faster, and exclude MaximumConcurrency.
	Pollers Pollers
	// ReportBatchItemFailures makes Lambda delete only the records that did not fail. Without it the answer's list
	// is ignored and failed messages are lost.
	ReportBatchItemFailures bool
}

// Pollers are a mapping's provisioned event pollers; the zero value is none. Each of them runs up to 10 invocations at
// once.
// Source: AWS Lambda Developer Guide, "Configuring provisioned mode for SQS event source mappings".
type Pollers struct {
	Minimum int // 2 to 200
	Maximum int // 2 to 2,000
}

const day = 24 * time.Hour

// Default is the stack with the numbers that it has unless somebody sets others.
func Default() Stack {
	s := Stack{
		Worker:    Function{Name: "worker", Timeout: time.Minute, MemoryMiB: 256},
		TableName: "agent-checkpoints",
		TopicName: "agent-dead-letters",
		// A request can ask to wait for a task for 25 s, and API Gateway waits 30 s for the answer.
		Submit:   Function{Name: "submit", Timeout: 29 * time.Second, MemoryMiB: 256},
		DLQAlarm: Function{Name: "dlqalarm", Timeout: 30 * time.Second, MemoryMiB: 256},
		Tasks: TaskQueue{
			Name:            "agent-tasks",
			MaxReceiveCount: 5,
			Mapping:         Mapping{BatchSize: 10, MaximumConcurrency: 10, ReportBatchItemFailures: true},
		},
		Ordered: TaskQueue{
			Name:            "agent-tasks-ordered",
			Queue:           Queue{FIFO: true},
			DeadLetter:      Queue{FIFO: true},
			MaxReceiveCount: 5,
			// One record a batch: a failing head then costs those behind it no delivery.
			Mapping: Mapping{BatchSize: 1, MaximumConcurrency: 10, ReportBatchItemFailures: true},
		},
		Retries:          3,
		RecordRetention:  90 * day,
		SweepInterval:    5 * time.Minute,
		AlarmPeriod:      time.Minute,
		MetricsNamespace: "agentworker",
	}
	for _, q := range []*TaskQueue{&s.Tasks, &s.Ordered} {
		q.Queue.Visibility = AdvisedVisibility(s.Worker.Timeout, q.Mapping.BatchingWindow)
		q.Queue.Retention = 7 * day
		q.Queue.ReceiveWait = 20 * time.Second
		q.DeadLetter.Visibility = time.Minute
		q.DeadLetter.Retention = 14 * day
		q.DeadLetter.ReceiveWait = 20 * time.Second
	}
	return s
}

// AdvisedVisibility is the visibility timeout that AWS advises for a queue that feeds a function.
func AdvisedVisibility(functionTimeout, window time.Duration) time.Duration {
	return 6*functionTimeout + window
}

// QueueName is the queue's name, with the suffix that SQS asks of a FIFO queue.
func (q TaskQueue) QueueName() string { return q.Name + suffix(q.Queue) }

// DeadLetterName is the same for the dead-letter queue.
func (q TaskQueue) DeadLetterName() string { return q.Name + "-dlq" + suffix(q.DeadLetter) }

func suffix(q Queue) string {
	if q.FIFO {
		return ".fifo"
	}
	return ""
}

// DeadLetterAlarmName is the name of the alarm on the depth of a queue's dead-letter queue.
func (q TaskQueue) DeadLetterAlarmName() string {
	return strings.TrimSuffix(q.DeadLetterName(), ".fifo") + "-depth"
}

// Patience is how long all deliveries of a message take if each one is lost. An older message is not being worked off.
func (q TaskQueue) Patience() time.Duration {
	return time.Duration(q.MaxReceiveCount) * q.Queue.Visibility
}

// Routes are the HTTP API's routes, in API Gateway's form.
func Routes() []string {
	return []string{
		"POST /agent/query",
		"POST /agent/tickets/{ticket_id}",
		"POST /agent/tasks",
		"GET /agent/tasks/{task_id}",
		"GET /agent/result/{thread_id}",
		"GET /agent/threads/{thread_id}/history",
		"GET /agent/threads/{thread_id}/checkpoints/{n}",
		"GET /agent/tickets/{ticket_id}",
		"GET /healthz",
		"GET /openapi.json",
		"GET /",
	}
}
