package alarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// ScheduleConfig describes a rule of EventBridge with a rate expression. Rule, Interval and Actions are required.
type ScheduleConfig struct {
	// Rule is the rule's name.
	Rule string
	// Interval is the time from one event to the next, and from the start to the first.
	Interval time.Duration
	// Actions are the rule's targets.
	Actions []Action
	// ActionARNs name what Actions call, for those who ask.
	ActionARNs []string
	// Region and AccountID go into the event; empty means us-east-1 and 000000000000.
	Region, AccountID string
	// Logger hears of actions that fail. Nil: slog.Default.
	Logger *slog.Logger
}

// Schedule sends events while Run runs.
type Schedule struct {
	config   ScheduleConfig
	disabled atomic.Bool
}

// NewSchedule makes a schedule. The error names everything that the configuration lacks.
func NewSchedule(config ScheduleConfig) (*Schedule, error) {
	config.Region = cmp.Or(config.Region, "us-east-1")
	config.AccountID = cmp.Or(config.AccountID, "000000000000")
	config.Logger = cmp.Or(config.Logger, slog.Default())
	var problems []error
	if config.Rule == "" {
		problems = append(problems, errors.New("schedule: Rule is empty: give the rule's name"))
	}
	if config.Interval <= 0 {
		problems = append(problems, fmt.Errorf("schedule: Interval %v must be positive", config.Interval))
	}
	if len(config.Actions) == 0 {
		problems = append(problems, errors.New("schedule: Actions is empty: give what the rule calls"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return &Schedule{config: config}, nil
}

// Run calls the actions once an interval until ctx ends, and returns nil then.
func (s *Schedule) Run(ctx context.Context) error {
	tick := time.NewTicker(s.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case at := <-tick.C:
			if !s.disabled.Load() {
				s.fire(at)
			}
		}
	}
}

func (s *Schedule) fire(at time.Time) {
	payload, err := s.event(at)
	if err != nil {
		s.config.Logger.Error("schedule event failed", "rule", s.config.Rule, "error", err)
		return
	}
	for _, action := range s.config.Actions {
		if err := action(payload); err != nil {
			s.config.Logger.Error("schedule action failed", "rule", s.config.Rule, "error", err)
		}
	}
}

// event is what a scheduled rule sends; its time has whole seconds.
// Source: Amazon EventBridge User Guide, "Events from Amazon EventBridge scheduled rules".
func (s *Schedule) event(at time.Time) ([]byte, error) {
	return json.Marshal(events.EventBridgeEvent{
		Version:    "0",
		ID:         uuid.NewString(),
		DetailType: "Scheduled Event",
		Source:     "aws.events",
		AccountID:  s.config.AccountID,
		Time:       at.UTC().Truncate(time.Second),
		Region:     s.config.Region,
		Resources:  []string{s.ARN()},
		Detail:     []byte("{}"),
	})
}
