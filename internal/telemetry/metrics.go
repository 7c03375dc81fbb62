// Package telemetry writes the functions' metrics in CloudWatch's embedded metric format: one JSON line on standard
// output for each task type that an invocation dealt with.
// Source: Amazon CloudWatch User Guide, "Specification: Embedded metric format".
package telemetry

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Name of a metric.
type Name string

// The metrics. Those of a duration are in milliseconds.
const (
	TasksSucceeded     Name = "TasksSucceeded"
	TasksFailed        Name = "TasksFailed"        // given up
	TasksRetried       Name = "TasksRetried"       // attempts that ended in another try
	WillDeadLetter     Name = "WillDeadLetter"     // messages that SQS will move to the dead-letter queue
	Duplicates         Name = "Duplicates"         // deliveries of a task that had already succeeded, or that another worker was at
	Conflicts          Name = "Conflicts"          // commits that another write came in between
	DeadlineHandedBack Name = "DeadlineHandedBack" // records that did not finish before the function's deadline
	Continued          Name = "Continued"          // attempts that ended between two steps, for the next delivery to go on
	TokensIn           Name = "TokensIn"           // that models read, by committed steps
	TokensOut          Name = "TokensOut"          // that models wrote, by committed steps
	EndToEnd           Name = "EndToEndLatency"    // from the message's SentTimestamp to its task's success
	StepDuration       Name = "StepDuration"
	DeadLetters        Name = "DeadLetters" // messages seen in a dead-letter queue
)

// units are CloudWatch's; whatever is not here is a count.
var units = map[Name]string{EndToEnd: "Milliseconds", StepDuration: "Milliseconds"}

const (
	dimension = "task"
	// A metric takes at most 100 values in one line. Source: as above.
	maxValues = 100
)

// Metrics collects values and writes them out on [Metrics.Flush]. It is safe for concurrent use. A nil *Metrics
// takes values and drops them.
type Metrics struct {
	namespace string
	out       io.Writer
	now       func() time.Time

	mu     sync.Mutex
	values map[string]map[Name][]float64 // by task type

	writing sync.Mutex // one Flush at a time
}

// NewMetrics writes to out, each Flush in one call per line.
func NewMetrics(namespace string, out io.Writer) *Metrics {
	return &Metrics{namespace: namespace, out: out, now: time.Now, values: map[string]map[Name][]float64{}}
}

// Count adds one to a counter of a task type.
func (m *Metrics) Count(name Name, taskType string) { m.Add(name, taskType, 1) }

// Time adds a duration.
func (m *Metrics) Time(name Name, taskType string, d time.Duration) {
	m.Add(name, taskType, float64(d.Microseconds())/1000)
}

// Add adds a value of a task type; "" stands for messages whose type cannot be read. NaN and the infinities, which
// CloudWatch does not take, are dropped.
func (m *Metrics) Add(name Name, taskType string, value float64) {
	if m == nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if taskType == "" {
		taskType = "unparsed"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	byName := m.values[taskType]
	if byName == nil {
		byName = map[Name][]float64{}
		m.values[taskType] = byName
	}
	if _, timed := units[name]; timed || len(byName[name]) == 0 {
		byName[name] = append(byName[name], value)
		return
	}
	byName[name][0] += value
}

// Flush writes what was collected and starts anew. Metrics are best effort: the error is for the log.
func (m *Metrics) Flush() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	values := m.values
	m.values = map[string]map[Name][]float64{}
	m.mu.Unlock()
	m.writing.Lock()
	defer m.writing.Unlock()
	for _, taskType := range slices.Sorted(maps.Keys(values)) {
		for byName := values[taskType]; len(byName) > 0; {
			line, err := m.line(taskType, byName)
			if err != nil {
				return fmt.Errorf("encode metrics: %w", err)
			}
			if _, err := m.out.Write(append(line, '\n')); err != nil {
				return fmt.Errorf("write metrics: %w", err)
			}
		}
	}
	return nil
}

// line takes as many values out of byName as one line may hold.
func (m *Metrics) line(taskType string, byName map[Name][]float64) ([]byte, error) {
	type definition struct {
		Name Name
		Unit string
	}
	type directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []definition
	}
	type metadata struct {
		Timestamp         int64
		CloudWatchMetrics []directive
	}
	d := directive{Namespace: m.namespace, Dimensions: [][]string{{}, {dimension}}}
	line := map[string]any{dimension: taskType}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		values := byName[name]
		n := min(len(values), maxValues)
		unit, timed := units[name]
		if !timed {
			unit = "Count"
		}
		d.Metrics = append(d.Metrics, definition{name, unit})
		line[string(name)] = values[:n]
		if byName[name] = values[n:]; n == len(values) {
			delete(byName, name)
		}
	}
	line["_aws"] = metadata{m.now().UnixMilli(), []directive{d}}
	return json.Marshal(line, json.Deterministic(true))
}
