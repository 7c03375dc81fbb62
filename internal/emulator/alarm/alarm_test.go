package alarm_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentworker/internal/emulator/alarm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet     = slog.New(slog.DiscardHandler)
	idPattern = regexp.MustCompile(`"id":"[0-9a-f-]{36}"`)
)

// history is what the metric says, period for period; -1 is an error, and the last one stays.
func history(points ...int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		point := points[0]
		if len(points) > 1 {
			points = points[1:]
		}
		if point < 0 {
			return 0, errors.New("the queue does not answer")
		}
		return point, nil
	}
}

// run lets an alarm watch for the given time and returns its calls: A and O, each with the period it was in.
func run(t *testing.T, config alarm.Config, periods int) (calls [][]byte) {
	t.Helper()
	record := func(payload []byte) error {
		calls = append(calls, slices.Clone(payload))
		return nil
	}
	config.Name, config.QueueName, config.Logger = "tasks-dlq-depth", "tasks-dlq", quiet
	config.AlarmActions = append(config.AlarmActions, record)
	config.OKActions = append(config.OKActions, record)
	a, err := alarm.New(config)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	if got := a.State(); got != alarm.InsufficientData {
		t.Errorf("state at the start: got %s, want %s", got, alarm.InsufficientData)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(periods)*config.Period+config.Period/2)
	defer cancel()
	if err := a.Run(ctx); err != nil {
		t.Errorf("run: got %v, want none", err)
	}
	return calls
}

func TestEventIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := run(t, alarm.Config{
			Description: "Messages lie in the dead-letter queue.", Region: "eu-west-1", AccountID: "123456789012",
			Period: time.Minute, Metric: history(0, 3),
		}, 2)
		if len(calls) != 2 {
			t.Fatalf("got %d calls, want 2", len(calls))
		}
		compareGolden(t, "testdata/alarm.golden.json", calls[1])

		var first struct {
			AlarmData struct{ PreviousState jsontext.Value }
		}
		if err := json.Unmarshal(calls[0], &first, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		want := `{"value":"INSUFFICIENT_DATA","reason":"Unchecked: Initial alarm creation","timestamp":"2000-01-01T00:00:00.000+0000"}`
		if got := string(first.AlarmData.PreviousState); got != want {
			t.Errorf("previous state of the first change: got %s, want %s", got, want)
		}
	})
}

// Case: DLQ alarm silent (missing data)
func TestMissingDataIsNotBreaching(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := run(t, alarm.Config{Period: time.Second, Metric: history(1, -1)}, 2)
		var last struct {
			AlarmData struct {
				State struct{ Value, Reason, ReasonData string }
			}
		}
		if len(calls) != 2 {
			t.Fatalf("got %d calls, want 2", len(calls))
		}
		if err := json.Unmarshal(calls[1], &last, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		got := last.AlarmData.State
		if got.Value != "OK" || !strings.Contains(got.Reason, "treated as [NonBreaching]") {
			t.Errorf("got %s because %s, want OK because missing data is not breaching", got.Value, got.Reason)
		}
		want := `{"version":"1.0","queryDate":"2000-01-01T00:00:02.000+0000","statistic":"Maximum","period":1,"recentDatapoints":[],"threshold":1.0}`
		if got.ReasonData != want {
			t.Errorf("reason data: got %s, want %s", got.ReasonData, want)
		}
	})
}

func TestActionsRunOnChangesOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		points    []int
		threshold int
		want      string
	}{
		"empty queue":             {[]int{0, 0, 0}, 0, "2000-01-01T00:00:01 OK"},
		"more messages, one call": {[]int{0, 1, 2, 9}, 0, "2000-01-01T00:00:01 OK, 2000-01-01T00:00:02 ALARM"},
		"there and back":          {[]int{0, 1, 1, 0, 0, 1}, 0, "2000-01-01T00:00:01 OK, 2000-01-01T00:00:02 ALARM, 2000-01-01T00:00:04 OK, 2000-01-01T00:00:06 ALARM"},
		"from the start":          {[]int{5, 5}, 0, "2000-01-01T00:00:01 ALARM"},
		"no data at all":          {[]int{-1, -1}, 0, "2000-01-01T00:00:01 OK"},
		"threshold of 3":          {[]int{2, 3, 2}, 3, "2000-01-01T00:00:01 OK, 2000-01-01T00:00:02 ALARM, 2000-01-01T00:00:03 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := run(t, alarm.Config{Period: time.Second, Threshold: c.threshold, Metric: history(c.points...)}, len(c.points))
				var got []string
				for _, call := range calls {
					var event struct {
						Time      string `json:"time"`
						AlarmData struct {
							State struct {
								Value string `json:"value"`
							} `json:"state"`
						} `json:"alarmData"`
					}
					if err := json.Unmarshal(call, &event); err != nil {
						t.Fatal(err)
					}
					got = append(got, strings.TrimSuffix(event.Time, ".000+0000")+" "+event.AlarmData.State.Value)
				}
				if got := strings.Join(got, ", "); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestFailingActionStopsNeitherTheOthersNorTheAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failing := func([]byte) error { return errors.New("not accepted") }
		calls := run(t, alarm.Config{
			Period: time.Second, Metric: history(1, 0, 1), AlarmActions: []alarm.Action{failing},
		}, 3)
		if len(calls) != 3 {
			t.Errorf("got %d calls, want 3", len(calls))
		}
	})
}

func TestScheduleSendsTheGoldenEventEveryInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]byte
		s, err := alarm.NewSchedule(alarm.ScheduleConfig{
			Rule: "sweep", Interval: 5 * time.Minute, Region: "eu-west-1", AccountID: "123456789012", Logger: quiet,
			Actions: []alarm.Action{
				func([]byte) error { return errors.New("not accepted") },
				func(payload []byte) error { calls = append(calls, slices.Clone(payload)); return nil },
			},
		})
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Errorf("run: got %v, want none", err)
		}
		if len(calls) != 2 {
			t.Fatalf("got %d events in 12 minutes, want 2", len(calls))
		}
		compareGolden(t, "testdata/schedule.golden.json", calls[0])
		if idPattern.Find(calls[0]) == nil || string(idPattern.Find(calls[0])) == string(idPattern.Find(calls[1])) {
			t.Errorf("ids: got %s and %s, want two different ones", idPattern.Find(calls[0]), idPattern.Find(calls[1]))
		}
	})
}

func TestConfigurationNamesAllThatItLacks(t *testing.T) {
	t.Parallel()
	_, err := alarm.New(alarm.Config{Period: -1})
	for _, want := range []string{"Name", "QueueName", "Metric", "Period"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("alarm: got %v, want it to name %s", err, want)
		}
	}
	_, err = alarm.NewSchedule(alarm.ScheduleConfig{})
	for _, want := range []string{"Rule", "Interval", "Actions"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("schedule: got %v, want it to name %s", err, want)
		}
	}
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got = idPattern.ReplaceAll(got, []byte(`"id":"ID"`))
	if diff := cmp.Diff(indented(t, want), indented(t, got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func indented(t *testing.T, text []byte) string {
	t.Helper()
	value := jsontext.Value(slices.Clone(text))
	if err := value.Canonicalize(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := value.Indent(); err != nil {
		t.Fatal(err)
	}
	return string(value)
}
