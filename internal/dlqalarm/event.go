package dlqalarm

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Kind is what has called the function.
type Kind string

// The kinds of events. Whatever is not one of the first two is Other, malformed events included: they are no reason
// not to look.
const (
	KindAlarm    Kind = "alarm"    // a CloudWatch alarm has changed its state
	KindSchedule Kind = "schedule" // EventBridge's scheduled event
	KindOther    Kind = "other"    // a person, for example
)

// Event is what the function is called with. Its zero value stands for nothing known.
type Event struct {
	Kind  Kind
	Alarm Alarm // for KindAlarm
}

// Alarm is a change of a CloudWatch alarm's state. Any field may be empty.
type Alarm struct {
	ARN, Name       string
	State, Previous string // "OK", "ALARM" or "INSUFFICIENT_DATA"
	Reason          string
	Timestamp       string    // of the change, as CloudWatch wrote it: with the ARN, it names the change
	At              time.Time // the same as a time; zero: unreadable
	// Queues are the names in the metrics' QueueName dimensions, sorted. A composite alarm has none.
	Queues []string
}

// States of an alarm that matter here.
const (
	stateOK    = "OK"
	stateAlarm = "ALARM"
)

// alarmTime is how CloudWatch writes times in alarm events: without RFC 3339's colon in the offset.
const alarmTime = "2006-01-02T15:04:05.999-0700"

// alarmEvent is the event of an alarm whose action is a Lambda function; it is another one than
// those that go through SNS or EventBridge.
// Source: Amazon CloudWatch User Guide, "Invoke a Lambda function from an alarm".
type alarmEvent struct {
	Source    string `json:"source"`
	AlarmARN  string `json:"alarmArn"`
	AlarmData *struct {
		AlarmName     string         `json:"alarmName"`
		State         jsontext.Value `json:"state"`
		PreviousState jsontext.Value `json:"previousState"`
		Configuration jsontext.Value `json:"configuration"`
	} `json:"alarmData"`
}

type alarmState struct {
	Value     string `json:"value"`
	Reason    string `json:"reason"`
	Timestamp string `json:"timestamp"`
}

type alarmConfiguration struct {
	Metrics []struct {
		MetricStat struct {
			Metric struct {
				Dimensions map[string]string `json:"dimensions"`
			} `json:"metric"`
		} `json:"metricStat"`
	} `json:"metrics"`
}

// ParseEvent reads an event. It takes what it can read and leaves the rest empty.
func ParseEvent(payload []byte) Event {
	var e alarmEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return Event{Kind: KindOther}
	}
	switch {
	case e.Source == "aws.events":
		return Event{Kind: KindSchedule}
	case e.Source != "aws.cloudwatch" || e.AlarmData == nil:
		return Event{Kind: KindOther}
	}
	state, previous := part[alarmState](e.AlarmData.State), part[alarmState](e.AlarmData.PreviousState)
	a := Alarm{
		ARN: e.AlarmARN, Name: e.AlarmData.AlarmName,
		State: state.Value, Previous: previous.Value, Reason: state.Reason, Timestamp: state.Timestamp,
	}
	if at, err := time.Parse(alarmTime, state.Timestamp); err == nil {
		a.At = at.UTC()
	}
	for _, m := range part[alarmConfiguration](e.AlarmData.Configuration).Metrics {
		if name := m.MetricStat.Metric.Dimensions["QueueName"]; name != "" {
			a.Queues = append(a.Queues, name)
		}
	}
	slices.Sort(a.Queues)
	a.Queues = slices.Compact(a.Queues)
	return Event{Kind: KindAlarm, Alarm: a}
}

// part decodes a part of the event; one that is not as expected is left out as a whole.
func part[T any](v jsontext.Value) T {
	var out, none T
	if len(v) == 0 || json.Unmarshal(v, &out) != nil {
		return none
	}
	return out
}
