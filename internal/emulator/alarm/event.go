package alarm

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// DepthMetric is the metric that an alarm here watches.
// Source: Amazon SQS Developer Guide, "Available CloudWatch metrics for Amazon SQS".
const DepthMetric = "ApproximateNumberOfMessagesVisible"

// timeLayout is how CloudWatch writes times in alarm events: RFC 3339 has a colon in the offset.
const timeLayout = "2006-01-02T15:04:05.000-0700"

// changeEvent is what CloudWatch invokes a function with.
// Source: Amazon CloudWatch User Guide, "Invoke a Lambda function from an alarm".
type changeEvent struct {
	Source    string    `json:"source"`
	AlarmARN  string    `json:"alarmArn"`
	AccountID string    `json:"accountId"`
	Time      string    `json:"time"`
	Region    string    `json:"region"`
	AlarmData alarmData `json:"alarmData"`
}

type alarmData struct {
	AlarmName     string        `json:"alarmName"`
	State         stateRecord   `json:"state"`
	PreviousState stateRecord   `json:"previousState"`
	Configuration configuration `json:"configuration"`
}

type stateRecord struct {
	Value      State  `json:"value"`
	Reason     string `json:"reason"`
	ReasonData string `json:"reasonData,omitzero"` // JSON in a string
	Timestamp  string `json:"timestamp"`
}

type configuration struct {
	Description string   `json:"description,omitzero"`
	Metrics     []metric `json:"metrics"`
}

type metric struct {
	ID         string     `json:"id"`
	MetricStat metricStat `json:"metricStat"`
	ReturnData bool       `json:"returnData"`
}

type metricStat struct {
	Metric metricName `json:"metric"`
	Period int        `json:"period"` // seconds
	Stat   string     `json:"stat"`
}

type metricName struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Dimensions map[string]string `json:"dimensions"`
}

type reasonData struct {
	Version             string           `json:"version"`
	QueryDate           string           `json:"queryDate"`
	StartDate           string           `json:"startDate,omitzero"`
	Statistic           string           `json:"statistic"`
	Period              int              `json:"period"`
	RecentDatapoints    []number         `json:"recentDatapoints"`
	Threshold           number           `json:"threshold"`
	EvaluatedDatapoints []evaluatedPoint `json:"evaluatedDatapoints,omitzero"`
}

type evaluatedPoint struct {
	Timestamp   string `json:"timestamp"`
	SampleCount number `json:"sampleCount"`
	Value       number `json:"value"`
}

// number is written with a decimal point, as CloudWatch writes all of its values.
type number int

func (n number) String() string { return strconv.Itoa(int(n)) + ".0" }

// MarshalJSON writes the number with its decimal point.
func (n number) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// datapoint is the metric over one period.
type datapoint struct {
	start   time.Time
	visible int
	missing bool
}

func initialState(at time.Time) stateRecord {
	return stateRecord{Value: InsufficientData, Reason: "Unchecked: Initial alarm creation", Timestamp: stamp(at)}
}

// record is the state that a data point has led to.
func (a *Alarm) record(value State, point datapoint, now time.Time) stateRecord {
	data := reasonData{
		Version:          "1.0",
		QueryDate:        stamp(now),
		Statistic:        "Maximum",
		Period:           a.seconds(),
		RecentDatapoints: []number{},
		Threshold:        number(a.config.Threshold),
	}
	reason := "Threshold Crossed: no datapoints were received for 1 period and 1 missing datapoint was treated as [NonBreaching]."
	if !point.missing {
		verb, transition := "was not", "ALARM -> OK"
		if value == Alarming {
			verb, transition = "was", "OK -> ALARM"
		}
		reason = fmt.Sprintf("Threshold Crossed: 1 out of the last 1 datapoints [%v (%s)] %s greater than or equal to the "+
			"threshold (%v) (minimum 1 datapoint for %s transition).",
			number(point.visible), point.start.UTC().Format("02/01/06 15:04:05"), verb, number(a.config.Threshold), transition)
		data.StartDate = stamp(point.start)
		data.RecentDatapoints = []number{number(point.visible)}
		data.EvaluatedDatapoints = []evaluatedPoint{{Timestamp: stamp(point.start), SampleCount: 1, Value: number(point.visible)}}
	}
	text, _ := json.Marshal(data) // strings and numbers: it cannot fail
	return stateRecord{Value: value, Reason: reason, ReasonData: string(text), Timestamp: stamp(now)}
}

func (a *Alarm) event(current, previous stateRecord) ([]byte, error) {
	return json.Marshal(changeEvent{
		Source:    "aws.cloudwatch",
		AlarmARN:  a.config.ARN,
		AccountID: a.config.AccountID,
		Time:      current.Timestamp,
		Region:    a.config.Region,
		AlarmData: alarmData{
			AlarmName:     a.config.Name,
			State:         current,
			PreviousState: previous,
			Configuration: configuration{
				Description: a.config.Description,
				Metrics: []metric{{
					ID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(a.config.ARN)).String(),
					MetricStat: metricStat{
						Metric: metricName{
							Namespace:  "AWS/SQS",
							Name:       DepthMetric,
							Dimensions: map[string]string{"QueueName": a.config.QueueName},
						},
						Period: a.seconds(),
						Stat:   "Maximum",
					},
					ReturnData: true,
				}},
			},
		},
	})
}

// seconds is the period in CloudWatch's unit, which knows no fraction.
func (a *Alarm) seconds() int { return max(1, int(a.config.Period/time.Second)) }

func stamp(t time.Time) string { return t.UTC().Format(timeLayout) }
