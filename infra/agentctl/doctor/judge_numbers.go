package doctor

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentworker/internal/config"
	"agentworker/internal/topology"
)

// judgePresence is about what the stack is said to have.
func (s State) judgePresence(e *examination) {
	for _, p := range []Pair{s.Tasks, s.Ordered} {
		for _, q := range []*Queue{p.Queue, p.DeadLetter} {
			if q != nil {
				e.check(Presence, q.Name, true, "")
			}
		}
	}
	for _, f := range s.functions() {
		e.check(Presence, f.Name, true, "")
	}
	for _, m := range s.Missing {
		if m.Type != alarmType { // see judgeAlarms
			e.check(Presence, m.Name, false, "%s: the stack has it as %s, and it is not there", m.Name, m.Type)
		}
	}
}

func (s State) functions() (there []*Function) {
	for _, f := range []*Function{s.Worker, s.Submit, s.DLQAlarm} {
		if f != nil {
			there = append(there, f)
		}
	}
	return there
}

// judgeNumbers has the rules of the topology judge what was seen. Without all of it there is nothing that they could
// compare.
func (s State) judgeNumbers(e *examination) {
	live, ok := s.topology()
	if !ok {
		return
	}
	for _, j := range live.Judge() {
		if j.Rule == topology.RuleName {
			continue // what AWS has accepted is a name
		}
		part := j.Part
		if part == "" {
			part = s.Stack
		}
		e.check(Check(j.Rule), part, j.OK, "%s", j.Sentence)
	}
	s.judgeWorkerNumbers(e, live)
}

// judgeWorkerNumbers compares what the worker is told with what the queues and mappings are.
func (s State) judgeWorkerNumbers(e *examination, live topology.Stack) {
	told, err := load[config.Worker](s.Worker)
	if err != nil {
		return // see judgeEnvironment
	}
	count := Check(topology.RuleReceiveCount)
	if !e.wrong(count) && s.Tasks.Queue.Redrive != nil && s.Ordered.Queue.Redrive != nil {
		least := min(live.Tasks.MaxReceiveCount, live.Ordered.MaxReceiveCount)
		e.check(count, s.Worker.Name, told.MaxReceiveCount == least,
			"%s: MAX_RECEIVE_COUNT is %d, and the queues' smallest max receive count is %d: the worker would take a wrong attempt for the last one; set them alike",
			s.Worker.Name, told.MaxReceiveCount, least)
	}
	report := Check(topology.RulePartialBatch)
	if !e.wrong(report) {
		e.check(report, s.Worker.Name, told.PartialBatch,
			"%s: REPORT_BATCH_ITEM_FAILURES is false, and the mappings do report them: one failed record fails its whole batch; set it to true", s.Worker.Name)
	}
}

// topology puts what was seen into the form that the rules are written for. What is wrong in another check's eyes has the
// default here, so that it is told once.
func (s State) topology() (topology.Stack, bool) {
	if !s.Tasks.read() || !s.Ordered.read() || s.Worker == nil || s.Submit == nil || s.DLQAlarm == nil {
		return topology.Stack{}, false
	}
	live := topology.Default()
	if told, err := load[config.Worker](s.Worker); err == nil {
		live.Retries, live.RecordRetention, live.MetricsNamespace = told.Retries, told.RecordRetention, told.MetricsNamespace
	}
	live.Worker, live.Submit, live.DLQAlarm = s.Worker.topology(), s.Submit.topology(), s.DLQAlarm.topology()
	live.Tasks, live.Ordered = s.taskQueue(s.Tasks, live.Tasks, live.Retries), s.taskQueue(s.Ordered, live.Ordered, live.Retries)
	if interval, ok := interval(s.Rule); ok {
		live.SweepInterval = interval
	}
	var periods []time.Duration
	for _, a := range s.Alarms {
		if s.watchesDeadLetters(a) && !s.Local { // on one machine a queue's depth is there every second
			periods = append(periods, a.Period)
		}
	}
	if len(periods) > 0 {
		live.AlarmPeriod = slices.Min(periods) // CloudWatch itself keeps the others to whole minutes
	}
	return live, true
}

func (p Pair) read() bool { return p.Queue != nil && p.DeadLetter != nil && p.MappingsRead }

func (f *Function) topology() topology.Function {
	return topology.Function{Name: f.Name, Timeout: f.Timeout, MemoryMiB: f.MemoryMiB}
}

func (q *Queue) topology() topology.Queue {
	return topology.Queue{FIFO: q.FIFO, Visibility: q.Visibility, Retention: q.Retention, ReceiveWait: q.Wait}
}

func (s State) taskQueue(p Pair, fallback topology.TaskQueue, retries int) topology.TaskQueue {
	t := topology.TaskQueue{
		Name:  strings.TrimSuffix(p.Queue.Name, ".fifo"),
		Queue: p.Queue.topology(), DeadLetter: p.DeadLetter.topology(), Mapping: fallback.Mapping,
		MaxReceiveCount: max(fallback.MaxReceiveCount, retries+2),
	}
	if p.Queue.Redrive != nil {
		t.MaxReceiveCount = p.Queue.Redrive.MaxReceiveCount
	}
	own := s.own(p)
	if len(own) == 0 {
		return t
	}
	m := own[0]
	t.Mapping = topology.Mapping{
		BatchSize: m.BatchSize, BatchingWindow: m.Window, MaximumConcurrency: m.MaximumConcurrency, ReportBatchItemFailures: m.ReportFailures,
		Pollers: topology.Pollers{Minimum: m.MinimumPollers, Maximum: m.MaximumPollers},
	}
	return t
}

// own are the mappings of a queue that feed the worker.
func (s State) own(p Pair) []EventSource {
	return slices.DeleteFunc(slices.Clone(p.Mappings), func(m EventSource) bool { return s.Worker != nil && m.FunctionARN != s.Worker.ARN })
}

var rate = regexp.MustCompile(`^rate\((\d+) (minute|hour|day)s?\)$`)

// interval is that of a rule with a rate.
// Source: Amazon EventBridge User Guide, "Rate expressions".
func interval(r *Rule) (time.Duration, bool) {
	if r == nil {
		return 0, false
	}
	parts := rate.FindStringSubmatch(r.Expression)
	if parts == nil {
		return 0, false
	}
	n, err := strconv.Atoi(parts[1])
	unit := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[parts[2]]
	return time.Duration(n) * unit, err == nil
}

// load reads a function's configuration from the environment that it was given.
func load[C interface{ Validate() error }](f *Function) (C, error) {
	var pairs []string
	for name, value := range f.Environment {
		pairs = append(pairs, name+"="+value)
	}
	return config.LoadFrom[C](pairs)
}
