package alarm

import "time"

// Description is how an alarm is set up and how it stands.
type Description struct {
	Config
	State          State
	StateReason    string
	StateSince     time.Time
	ActionsEnabled bool
	Statistic      string // Maximum
}

// Describe tells how the alarm is set up; ok is false once it has been deleted.
func (a *Alarm) Describe() (d Description, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, _ := time.Parse(timeLayout, a.current.Timestamp) // written by stamp
	return Description{
		Config: a.config, State: a.current.Value, StateReason: a.current.Reason, StateSince: since,
		ActionsEnabled: !a.muted, Statistic: "Maximum",
	}, !a.deleted
}

// EnableActions has the alarm call its actions, or only change its state.
func (a *Alarm) EnableActions(enabled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.muted = !enabled
}

// Delete makes the alarm call nothing any more and be no more heard of.
func (a *Alarm) Delete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deleted = true
}

// Enable has the schedule send its events, or pass over them.
func (s *Schedule) Enable(enabled bool) { s.disabled.Store(!enabled) }

// Enabled tells whether the schedule sends its events.
func (s *Schedule) Enabled() bool { return !s.disabled.Load() }

// Settings is how the schedule is set up, with the defaults filled in.
func (s *Schedule) Settings() ScheduleConfig { return s.config }

// ARN is the rule's Amazon resource name.
func (s *Schedule) ARN() string {
	return "arn:aws:events:" + s.config.Region + ":" + s.config.AccountID + ":rule/" + s.config.Rule
}
