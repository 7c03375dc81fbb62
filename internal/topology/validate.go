package topology

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Rule names what a setting must satisfy. Rules about the same thing have the same name.
type Rule string

// The rules that a stack in operation can come to break. The others are about names and ranges that AWS itself keeps.
const (
	RuleVisibility     Rule = "visibility-timeout"
	RuleReceiveCount   Rule = "max-receive-count"
	RuleDeadLetterType Rule = "dead-letter-type"
	RuleRetention      Rule = "dead-letter-retention"
	RulePartialBatch   Rule = "partial-batch"
	RuleConcurrency    Rule = "mapping-concurrency"
	RuleBatch          Rule = "batch"
	RuleTimeout        Rule = "function-timeout"
	RuleRecords        Rule = "record-retention"
	RuleSweep          Rule = "sweep-interval"
	RuleAlarmPeriod    Rule = "alarm-period"
	RuleName           Rule = "name"
	RuleRange          Rule = "range"
)

// Judgement is what one rule says about one part of a stack.
type Judgement struct {
	Rule Rule
	// Part is the name of the queue or function that was judged; "" for the whole stack.
	Part string
	OK   bool
	// Sentence says what is wrong and what to set; "" when nothing is.
	Sentence string
}

// Validate reports every setting that AWS would refuse or that would lose messages, each in a sentence that says
// what to change.
func (s Stack) Validate() error {
	var problems []error
	for _, j := range s.Judge() {
		if !j.OK {
			problems = append(problems, errors.New(j.Sentence))
		}
	}
	return errors.Join(problems...)
}

// Judge has every rule say whether the stack keeps it, in the order of the settings.
func (s Stack) Judge() []Judgement {
	var p judge
	for _, f := range []Function{s.Worker, s.Submit, s.DLQAlarm} {
		p.check(RuleName, f.Name, functionName.MatchString(f.Name), "function name is %q; set 1 to 64 letters, digits, - and _", f.Name)
		p.rangeOf(RuleTimeout, f.Name, "timeout", f.Timeout, time.Second, 15*time.Minute)
		p.check(RuleRange, f.Name, f.MemoryMiB >= 128 && f.MemoryMiB <= 10240, "%s: memory is %d MiB; set 128 to 10,240 MiB", f.Name, f.MemoryMiB)
	}
	p.check(RuleTimeout, s.Submit.Name, s.Submit.Timeout <= 30*time.Second,
		"submit: timeout is %v; set at most 30s, since API Gateway does not wait longer", s.Submit.Timeout)
	p.check(RuleReceiveCount, "", s.Retries >= 0 && s.Retries <= 100, "retries are %d; set 0 to 100", s.Retries)
	p.queue(s.Tasks, s.Worker, s.Retries)
	p.queue(s.Ordered, s.Worker, s.Retries)
	p.check(RuleName, "", s.Tasks.Name != s.Ordered.Name, "both queues are called %q; set two names", s.Tasks.Name)
	p.check(RuleRange, s.Tasks.Name, !s.Tasks.Queue.FIFO, "%s: must be a standard queue", s.Tasks.Name)
	p.check(RuleRange, s.Ordered.Name, s.Ordered.Queue.FIFO, "%s: must be a FIFO queue", s.Ordered.Name)
	longest := max(s.Tasks.Queue.Retention+s.Tasks.DeadLetter.Retention, s.Ordered.Queue.Retention+s.Ordered.DeadLetter.Retention)
	p.check(RuleRecords, "", s.RecordRetention > longest,
		"records are kept for %v; keep them longer than a message can live in a queue and its dead-letter queue, %v, or a redriven task would run twice",
		s.RecordRetention, longest)
	p.check(RuleSweep, "", s.SweepInterval >= time.Minute, "sweep interval is %v; set at least 1m", s.SweepInterval)
	p.check(RuleAlarmPeriod, "", s.AlarmPeriod >= time.Minute && s.AlarmPeriod%time.Minute == 0,
		"alarm period is %v; set whole minutes from 1m, since SQS reports a queue's depth once a minute", s.AlarmPeriod)
	p.check(RuleName, "", s.MetricsNamespace != "", "metrics namespace is empty; name one")
	return p
}

type judge []Judgement

func (p *judge) check(rule Rule, part string, ok bool, format string, args ...any) {
	j := Judgement{Rule: rule, Part: part, OK: ok}
	if !ok {
		j.Sentence = fmt.Sprintf(format, args...)
	}
	*p = append(*p, j)
}

func (p *judge) rangeOf(rule Rule, part, what string, d, low, high time.Duration) {
	p.check(rule, part, d >= low && d <= high && d%time.Second == 0, "%s: %s is %v; set whole seconds from %v to %v", part, what, d, low, high)
}

// Source: Amazon SQS Developer Guide, "Amazon SQS standard queue quotas": 80 characters, of which "-dlq.fifo" takes 9;
// AWS Lambda API Reference, "CreateFunction".
var (
	queueName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,71}$`)
	functionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

func (p *judge) queue(q TaskQueue, worker Function, retries int) {
	p.check(RuleName, q.Name, queueName.MatchString(q.Name),
		"queue name is %q; set 1 to 71 letters, digits, - and _; -dlq and .fifo are put behind it", q.Name)
	p.rangeOf(RuleVisibility, q.Name, "visibility timeout", q.Queue.Visibility, 0, 12*time.Hour)
	p.rangeOf(RuleRetention, q.Name, "retention", q.Queue.Retention, time.Minute, 14*day)
	p.rangeOf(RuleRange, q.Name, "dead-letter queue's visibility timeout", q.DeadLetter.Visibility, 0, 12*time.Hour)
	p.rangeOf(RuleRetention, q.Name, "dead-letter queue's retention", q.DeadLetter.Retention, time.Minute, 14*day)
	p.rangeOf(RuleRange, q.Name, "receive wait", q.Queue.ReceiveWait, 0, 20*time.Second)
	p.rangeOf(RuleRange, q.Name, "dead-letter queue's receive wait", q.DeadLetter.ReceiveWait, 0, 20*time.Second)

	advised := AdvisedVisibility(worker.Timeout, q.Mapping.BatchingWindow)
	p.check(RuleVisibility, q.Name, q.Queue.Visibility >= advised,
		"%s: visibility timeout is %v; set at least %v, six times the worker's timeout and the batching window, or a message comes back while it is being worked on",
		q.Name, q.Queue.Visibility, advised)
	p.check(RuleReceiveCount, q.Name, q.MaxReceiveCount >= 5 && q.MaxReceiveCount <= 1000,
		"%s: max receive count is %d; set 5 to 1,000, or throttling sends healthy messages to the dead-letter queue", q.Name, q.MaxReceiveCount)
	p.check(RuleReceiveCount, q.Name, retries+1 < q.MaxReceiveCount,
		"%s: max receive count is %d; set more than the worker's %d tries, so that a throttle or a crash takes none of them", q.Name, q.MaxReceiveCount, retries+1)
	p.check(RuleDeadLetterType, q.Name, q.DeadLetter.FIFO == q.Queue.FIFO,
		"%s: its dead-letter queue is of another type; make both FIFO or both standard", q.Name)
	p.check(RuleRetention, q.Name, q.DeadLetter.Retention > q.Queue.Retention,
		"%s: dead-letter queue keeps messages for %v; set more than the queue's %v, since the time in the queue counts", q.Name, q.DeadLetter.Retention, q.Queue.Retention)
	// What is out of its own range has been told.
	told := q.MaxReceiveCount > 1000 || q.Queue.Visibility > 12*time.Hour || q.Queue.Retention < time.Minute
	p.check(RuleRetention, q.Name, told || q.Patience() < q.Queue.Retention,
		"%s: %d deliveries, each of which may take the visibility timeout of %v, need %v, and the queue keeps a message for %v; "+
			"set a longer retention or a smaller max receive count, or a message expires instead of being dead-lettered",
		q.Name, q.MaxReceiveCount, q.Queue.Visibility, q.Patience(), q.Queue.Retention)
	p.mapping(q)
}

func (p *judge) mapping(q TaskQueue) {
	m := q.Mapping
	p.check(RulePartialBatch, q.Name, m.ReportBatchItemFailures,
		"%s: the mapping does not report batch item failures; turn it on, or failed messages are deleted", q.Name)
	if m.Pollers == (Pollers{}) {
		p.check(RuleConcurrency, q.Name, m.MaximumConcurrency >= 2 && m.MaximumConcurrency <= 1000,
			"%s: maximum concurrency is %d; set 2 to 1,000", q.Name, m.MaximumConcurrency)
	} else {
		p.pollers(q)
	}
	p.rangeOf(RuleBatch, q.Name, "batching window", m.BatchingWindow, 0, 5*time.Minute)
	if q.Queue.FIFO {
		p.check(RuleBatch, q.Name, m.BatchSize >= 1 && m.BatchSize <= 10, "%s: batch size is %d; set 1 to 10 for a FIFO queue", q.Name, m.BatchSize)
		p.check(RuleBatch, q.Name, m.BatchingWindow == 0, "%s: batching window is %v; set none for a FIFO queue", q.Name, m.BatchingWindow)
		return
	}
	p.check(RuleBatch, q.Name, m.BatchSize >= 1 && m.BatchSize <= 10000, "%s: batch size is %d; set 1 to 10,000", q.Name, m.BatchSize)
	p.check(RuleBatch, q.Name, m.BatchSize <= 10 || m.BatchingWindow >= time.Second,
		"%s: batch size is %d without a batching window; set a window of at least 1s, or at most 10 records", q.Name, m.BatchSize)
}

func (p *judge) pollers(q TaskQueue) {
	m := q.Mapping
	p.check(RuleConcurrency, q.Name, m.MaximumConcurrency == 0,
		"%s: both maximum concurrency, %d, and provisioned pollers are set, and they exclude each other; set one of them",
		q.Name, m.MaximumConcurrency)
	p.check(RuleConcurrency, q.Name, m.Pollers.Minimum >= 2 && m.Pollers.Minimum <= 200,
		"%s: minimum of provisioned pollers is %d; set 2 to 200", q.Name, m.Pollers.Minimum)
	p.check(RuleConcurrency, q.Name, m.Pollers.Maximum >= max(2, m.Pollers.Minimum) && m.Pollers.Maximum <= 2000,
		"%s: maximum of provisioned pollers is %d; set 2 to 2,000, and not less than the minimum, %d", q.Name, m.Pollers.Maximum, m.Pollers.Minimum)
}
