// Package alarm is what watches in the local chain: a CloudWatch alarm on the depth of a queue, and a schedule of
// EventBridge. Both send events in AWS's own shape to a Lambda function and wait for nothing.
package alarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"agentworker/internal/emulator/lambda"
)

// State is an alarm's state in CloudWatch's words.
type State string

// The states of an alarm.
const (
	InsufficientData State = "INSUFFICIENT_DATA" // until the first period is over
	OK               State = "OK"
	Alarming         State = "ALARM"
)

// Action takes an event and returns at once; running it, and trying again when that fails, is its own affair. An error
// means that the event was not accepted.
type Action func(payload []byte) error

// Invoke is the Action that invokes a function asynchronously, with Lambda's retries.
func Invoke(async *lambda.Async, function *lambda.Function) Action {
	return func(payload []byte) error {
		_, err := async.Send(function, payload)
		return err
	}
}

// Config describes an alarm of the form "ApproximateNumberOfMessagesVisible of the queue, Maximum, >= Threshold for 1
// period out of 1, missing data is not breaching". Name, QueueName and Metric are required.
type Config struct {
	Name, Description string
	// Region and AccountID go into the event and the ARN; empty means us-east-1 and 000000000000.
	Region, AccountID string
	// ARN of the alarm; empty means the one that CloudWatch would give it.
	ARN string
	// QueueName is the dimension of the metric.
	QueueName string
	// Metric is ApproximateNumberOfMessagesVisible of the queue. An error counts as a missing data point.
	Metric func(ctx context.Context) (visible int, err error)
	// Period is the time from one data point to the next; zero means a second. CloudWatch's is a minute for SQS.
	Period time.Duration
	// Threshold is the number of messages that breaches; zero means 1.
	Threshold int
	// AlarmActions and OKActions are called when the state has changed to ALARM and to OK, and never while it stays.
	AlarmActions, OKActions []Action
	// AlarmActionARNs name what AlarmActions call, for those who ask.
	AlarmActionARNs []string
	// Logger hears of changes of state. Nil: slog.Default.
	Logger *slog.Logger
}

// Alarm watches while Run runs. State may be called at any time, by any goroutine.
type Alarm struct {
	config Config

	mu      sync.Mutex
	muted   bool // its actions are disabled
	deleted bool
	current stateRecord
}

// New makes an alarm, which starts in INSUFFICIENT_DATA. The error names everything that the configuration lacks.
func New(config Config) (*Alarm, error) {
	config.Region = cmp.Or(config.Region, "us-east-1")
	config.AccountID = cmp.Or(config.AccountID, "000000000000")
	config.ARN = cmp.Or(config.ARN, "arn:aws:cloudwatch:"+config.Region+":"+config.AccountID+":alarm:"+config.Name)
	config.Period = cmp.Or(config.Period, time.Second)
	config.Threshold = cmp.Or(config.Threshold, 1)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	var problems []error
	if config.Name == "" {
		problems = append(problems, errors.New("alarm: Name is empty: give the alarm's name"))
	}
	if config.QueueName == "" {
		problems = append(problems, errors.New("alarm: QueueName is empty: give the name of the queue whose depth is watched"))
	}
	if config.Metric == nil {
		problems = append(problems, errors.New("alarm: Metric is missing: give a function that counts the visible messages"))
	}
	if config.Period < 0 || config.Threshold < 0 {
		problems = append(problems, fmt.Errorf("alarm: Period %v and Threshold %d must be positive", config.Period, config.Threshold))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return &Alarm{config: config, current: initialState(time.Now())}, nil
}

// State is the current state.
func (a *Alarm) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current.Value
}

// Run evaluates the metric once a period until ctx ends, and returns nil then. It must not run twice at once.
func (a *Alarm) Run(ctx context.Context) error {
	tick := time.NewTicker(a.config.Period)
	defer tick.Stop()
	missing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case at := <-tick.C:
			visible, err := a.config.Metric(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil && !missing {
				a.config.Logger.Warn("alarm has no data", "alarm", a.config.Name, "error", err)
			}
			missing = err != nil
			a.evaluate(datapoint{start: at.Add(-a.config.Period), visible: visible, missing: missing})
		}
	}
}

// evaluate moves the alarm to the state that one data point says, and calls the actions if that is another one.
func (a *Alarm) evaluate(point datapoint) {
	next := OK // a missing point is not breaching
	if !point.missing && point.visible >= a.config.Threshold {
		next = Alarming
	}
	a.mu.Lock()
	previous := a.current
	if previous.Value == next {
		a.mu.Unlock()
		return
	}
	a.current = a.record(next, point, time.Now())
	current, quiet := a.current, a.muted || a.deleted
	a.mu.Unlock()

	a.config.Logger.Info("alarm changed", "alarm", a.config.Name, "from", previous.Value, "to", next, "visible", point.visible)
	actions := a.config.OKActions
	if next == Alarming {
		actions = a.config.AlarmActions
	}
	if quiet || len(actions) == 0 {
		return
	}
	payload, err := a.event(current, previous)
	if err != nil {
		a.config.Logger.Error("alarm event failed", "alarm", a.config.Name, "state", next, "error", err)
		return
	}
	for _, action := range actions {
		if err := action(payload); err != nil {
			a.config.Logger.Error("alarm action failed", "alarm", a.config.Name, "state", next, "error", err)
		}
	}
}
