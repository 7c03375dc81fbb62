package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Source: Amazon SQS Developer Guide, "Available CloudWatch metrics for Amazon SQS".
const (
	depthMetric = "ApproximateNumberOfMessagesVisible"
	ageMetric   = "ApproximateAgeOfOldestMessage"
)

// Who invokes dlqalarm. Source: Amazon CloudWatch User Guide, "Invoke a Lambda function from an alarm"; Amazon EventBridge
// User Guide, "Using resource-based policies for Amazon EventBridge".
const (
	alarmsPrincipal = "lambda.alarms.cloudwatch.amazonaws.com"
	rulesPrincipal  = "events.amazonaws.com"
	invokeAction    = "lambda:InvokeFunction"
)

// patience is how long an alarm may be without data: after a deployment it has none for some minutes.
const patience = 15 * time.Minute

func (s State) judgeAlarms(e *examination, now time.Time) {
	if !s.AlarmsRead {
		return
	}
	gone := false
	for _, m := range s.Missing {
		if m.Type == alarmType {
			gone = true
			e.check(AlarmMissing, m.Name, false, "%s: the stack has this alarm, and it is not there", m.Name)
		}
	}
	for _, p := range []Pair{s.Tasks, s.Ordered} {
		if p.DeadLetter != nil && !gone { // one that is gone may be this one
			watched := slices.ContainsFunc(s.Alarms, func(a Alarm) bool { return a.Metric == depthMetric && a.QueueName == p.DeadLetter.Name })
			e.check(AlarmMissing, p.DeadLetter.Name, watched, "%s: no alarm watches its depth, so that nobody hears of a dead letter before the next sweep", p.DeadLetter.Name)
		}
	}
	for _, a := range s.Alarms {
		e.check(AlarmActions, a.Name, len(a.Actions) > 0, "%s: the alarm has no action: it goes off and nobody is told", a.Name)
		e.check(AlarmActions, a.Name, a.ActionsEnabled, "%s: the alarm's actions are disabled: it goes off and nobody is told", a.Name)
		s.judgeAlarmState(e, a, now)
		s.judgeAlarmPermission(e, a)
	}
}

func (s State) judgeAlarmState(e *examination, a Alarm, now time.Time) {
	switch a.State {
	case "ALARM":
		e.check(AlarmState, a.Name, s.told(e, a), "%s: the alarm has been in ALARM since %s: %s", a.Name, a.Since.UTC().Format(time.RFC3339), a.Reason)
	case "INSUFFICIENT_DATA":
		e.check(AlarmState, a.Name, now.Sub(a.Since) <= patience,
			"%s: the alarm has been in INSUFFICIENT_DATA since %s, though missing data counts as good: it cannot go off", a.Name, a.Since.UTC().Format(time.RFC3339))
	default:
		e.check(AlarmState, a.Name, true, "")
	}
}

// told says whether what an alarm has gone off for is told already.
func (s State) told(e *examination, a Alarm) bool {
	return a.Metric == depthMetric && e.seen[subject{DeadLetters, a.QueueName}] || a.Metric == ageMetric && e.seen[subject{MessageAge, a.QueueName}]
}

func (s State) judgeAlarmPermission(e *examination, a Alarm) {
	f := s.DLQAlarm
	if f == nil || !f.PolicyRead || !slices.Contains(a.Actions, f.ARN) {
		return
	}
	e.check(AlarmPermission, a.Name, f.Policy.Lets(alarmsPrincipal, invokeAction, a.ARN),
		"%s: the alarm's action is to invoke %s, whose policy does not let %s do that for %s", a.Name, f.Name, alarmsPrincipal, a.ARN)
}

// watchesDeadLetters tells whether an alarm is on the depth of a dead-letter queue.
func (s State) watchesDeadLetters(a Alarm) bool {
	return a.Metric == depthMetric && slices.ContainsFunc([]Pair{s.Tasks, s.Ordered}, func(p Pair) bool {
		return p.DeadLetter != nil && p.DeadLetter.Name == a.QueueName
	})
}

func (s State) judgeRule(e *examination) {
	if s.Rule == nil {
		return
	}
	e.check(Schedule, s.Rule.Name, s.Rule.Enabled, "%s: the schedule that has dlqalarm look is disabled: what an alarm does not see, nobody sees", s.Rule.Name)
	if s.DLQAlarm == nil || !s.Rule.TargetsRead {
		return
	}
	e.check(Schedule, s.Rule.Name, slices.Contains(s.Rule.Targets, s.DLQAlarm.ARN), "%s: the schedule invokes %s and not %s",
		s.Rule.Name, cmp.Or(strings.Join(s.Rule.Targets, ", "), "nothing"), s.DLQAlarm.ARN)
	if s.DLQAlarm.PolicyRead {
		e.check(Schedule, s.Rule.Name, s.DLQAlarm.Policy.Lets(rulesPrincipal, invokeAction, s.Rule.ARN),
			"%s: the policy of %s does not let %s invoke it for %s", s.Rule.Name, s.DLQAlarm.Name, rulesPrincipal, s.Rule.ARN)
	}
}
