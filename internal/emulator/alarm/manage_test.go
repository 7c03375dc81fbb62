package alarm_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"agentworker/internal/emulator/alarm"
)

// watch runs an alarm over points, one a minute, with a change after the first minute; it returns its calls.
func watch(t *testing.T, change func(*alarm.Alarm), points ...int) (a *alarm.Alarm, calls int) {
	t.Helper()
	called := func([]byte) error { calls++; return nil }
	a, err := alarm.New(alarm.Config{
		Name: "depth", QueueName: "dlq", Period: time.Minute, Metric: history(points...), Logger: quiet, AlarmActions: []alarm.Action{called},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(points))*time.Minute+time.Second)
	defer cancel()
	time.AfterFunc(90*time.Second, func() { change(a) })
	if err := a.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return a, calls
}

func TestADisabledAlarmChangesItsStateAndCallsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, calls := watch(t, func(a *alarm.Alarm) { a.EnableActions(false) }, 0, 1)
		d, ok := a.Describe()
		if calls != 0 || !ok || d.ActionsEnabled || d.State != alarm.Alarming || d.QueueName != "dlq" {
			t.Errorf("got %d calls and %+v, want none and ALARM", calls, d)
		}
		a, calls = watch(t, func(a *alarm.Alarm) { a.EnableActions(true) }, 0, 1)
		if d, _ := a.Describe(); calls != 1 || !d.ActionsEnabled || !d.StateSince.Equal(time.Now().Add(-time.Second)) {
			t.Errorf("enabled: got %d calls and %+v, want one, a second ago", calls, d)
		}
	})
}

func TestADeletedAlarmIsNoMoreHeardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, calls := watch(t, (*alarm.Alarm).Delete, 0, 1)
		if _, ok := a.Describe(); ok || calls != 0 {
			t.Errorf("got there: %v, %d calls, want neither", ok, calls)
		}
	})
}

func TestADisabledScheduleSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s, err := alarm.NewSchedule(alarm.ScheduleConfig{Rule: "sweep", Interval: time.Minute, Logger: quiet, Actions: []alarm.Action{func([]byte) error { calls++; return nil }}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Second)
		defer cancel()
		time.AfterFunc(90*time.Second, func() { s.Enable(false) })
		time.AfterFunc(210*time.Second, func() { s.Enable(true) })
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if calls != 3 || !s.Enabled() {
			t.Errorf("got %d events, want those of minutes 1, 4 and 5", calls)
		}
	})
}
