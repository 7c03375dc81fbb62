package dlqalarm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

// Limits of a notification. Source: Amazon SNS API Reference, "Publish".
const (
	maxSubject = 100       // characters of ASCII, without control characters
	maxBody    = 256 << 10 // bytes of UTF-8
)

const (
	mostGroups = 40 // of one queue that are written out
	mostCode   = 60 // bytes of a code, which a task type may choose
	// mostAlarm is the longest text of an alarm. Source: Amazon CloudWatch API Reference, "SetAlarmState".
	mostAlarm = 1023
)

type notification struct{ subject, body string }

// compose writes the summary down for operators.
func compose(e Event, s Summary, now time.Time) notification {
	var b strings.Builder
	if e.Kind == KindAlarm {
		fmt.Fprintf(&b, "Alarm %s is in state %s", dlq.Line(e.Alarm.Name, mostAlarm), dlq.Line(e.Alarm.State, mostAlarm))
		if !e.Alarm.At.IsZero() {
			fmt.Fprintf(&b, " since %s", e.Alarm.At.Format(time.RFC3339))
		}
		fmt.Fprintf(&b, ": %s\n\n", dlq.Line(e.Alarm.Reason, mostAlarm))
	}
	for _, q := range s.Queues {
		if q.Seen > 0 {
			q.write(&b, now)
		}
	}
	b.WriteString("Nothing was deleted. While a dead letter lies in its queue it is repeated about once a day.\n")
	return notification{subject: subject(s), body: dlq.Cut(b.String(), maxBody)}
}

// over is the notification that an alarm's queues are empty again.
func over(e Event, s Summary) notification {
	names := make([]string, len(s.Queues))
	for i, q := range s.Queues {
		names[i] = q.Name
	}
	verb := " is"
	if len(names) > 1 {
		verb = " are"
	}
	text := strings.Join(names, ", ") + verb + " empty again"
	return notification{
		subject: ascii(text, maxSubject),
		body:    dlq.Cut(fmt.Sprintf("%s. Alarm %s is in state %s.\n", text, dlq.Line(e.Alarm.Name, mostAlarm), dlq.Line(e.Alarm.State, mostAlarm)), maxBody),
	}
}

// subject is like "3 dead letters in agent-tasks-dlq: 2 TASK_FAILED, 1 MALFORMED_MESSAGE".
func subject(s Summary) string {
	var names []string
	counts := map[string]int{}
	complete := true
	for _, q := range s.Queues {
		if q.Seen > 0 {
			names = append(names, q.Name)
		}
		complete = complete && (q.Seen == 0 || q.Complete)
		for _, g := range q.Groups {
			counts[g.Code] += g.Count
		}
	}
	where := fmt.Sprintf("%d queues", len(names))
	if len(names) == 1 {
		where = names[0]
	}
	codes := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, code := range codes {
		codes[i] = fmt.Sprintf("%d %s", counts[code], code)
	}
	text := count(s.seen(), "dead letter") + " in " + where + ": " + strings.Join(codes, ", ")
	if !complete {
		text = "at least " + text
	}
	return ascii(text, maxSubject)
}

func (q QueueSummary) write(b *strings.Builder, now time.Time) {
	fmt.Fprintf(b, "%s\n%s\n", q.Name, strings.Repeat("=", len(q.Name)))
	if q.Complete {
		fmt.Fprintf(b, "%s\n\n", count(q.Seen, "dead letter"))
	} else {
		fmt.Fprintf(b, "at least %s (of approximately %d by the queue's count)\n\n", count(q.Seen, "dead letter"), max(q.Approximate, q.Seen))
	}
	for i, g := range q.Groups {
		if i == mostGroups {
			fmt.Fprintf(b, "... and %d more kinds\n\n", len(q.Groups)-mostGroups)
			break
		}
		writeGroup(b, g, now)
	}
	redrive := "agentctl dlq redrive --queue tasks"
	if dlq.IsFIFO(q.Name) {
		redrive = "agentctl dlq redrive --queue ordered"
	}
	fmt.Fprintf(b, "What to do: see %q in the runbook. When the cause is mended, move some of the messages back by\n"+
		"%[2]s --reason <code>, or all of them by %[2]s, which does the same as\n", dlq.Line(q.Alarm, mostAlarm), redrive)
	arn := cmp.Or(q.ARN, "<ARN of "+q.Name+">")
	fmt.Fprintf(b, "  aws sqs start-message-move-task --source-arn %s\n", arn)
	if slices.ContainsFunc(q.Groups, func(g dlq.Group) bool { return slices.Contains(unmendable(), g.Code) }) {
		fmt.Fprintf(b, "Messages that are %s come back until the worker understands them.\n", strings.Join(unmendable(), ", "))
	}
	b.WriteString("\n")
}

// unmendable are the codes of messages that no worker can run as they are.
func unmendable() []string {
	return []string{task.CodeMalformed, task.CodeUnknownTask, task.CodeInvalidField}
}

func writeGroup(b *strings.Builder, g dlq.Group, now time.Time) {
	fmt.Fprintf(b, "%d x %s, %s", g.Count, dlq.Line(g.Code, mostCode), cmp.Or(g.Task, "no known task type"))
	if !g.Oldest.IsZero() {
		fmt.Fprintf(b, ", the oldest %s old (%s)", dlq.Age(now.Sub(g.Oldest)), g.Oldest.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(b, "\n  reason: %s\n", dlq.Line(g.Reason, task.MaxReasonLength))
	for _, id := range g.TaskIDs {
		fmt.Fprintf(b, "  task %s\n", id)
	}
	if more := g.Count - len(g.TaskIDs); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
	b.WriteString("\n")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func ascii(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	const ellipsis = "..."
	if len(s) > limit {
		s = s[:limit-len(ellipsis)] + ellipsis
	}
	return s
}
