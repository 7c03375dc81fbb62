package dlqalarm_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/dlqalarm"
)

func TestParseEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 17, 11, 53, 8, 431_000_000, time.UTC)
	const arn = "arn:aws:cloudwatch:us-east-1:123456789012:alarm:"
	tests := map[string]dlqalarm.Event{
		"alarm.json": {Kind: dlqalarm.KindAlarm, Alarm: dlqalarm.Alarm{
			ARN: arn + "agent-tasks-dlq-depth", Name: "agent-tasks-dlq-depth", State: "ALARM", Previous: "OK",
			Reason:    "Threshold Crossed: 1 out of the last 1 datapoints [2.0 (17/02/26 11:52:00)] was greater than or equal to the threshold (1.0) (minimum 1 datapoint for OK -> ALARM transition).",
			Timestamp: "2026-02-17T11:53:08.431+0000", At: at, Queues: []string{"agent-tasks-dlq"},
		}},
		"alarm-ok.json": {Kind: dlqalarm.KindAlarm, Alarm: dlqalarm.Alarm{
			ARN: arn + "agent-tasks-dlq-depth", Name: "agent-tasks-dlq-depth", State: "OK", Previous: "ALARM",
			Reason:    "Threshold Crossed: no datapoints were received for 1 period and 1 missing datapoint was treated as [NonBreaching].",
			Timestamp: "2026-02-17T12:53:08.431+0000", At: at.Add(time.Hour), Queues: []string{"agent-tasks-dlq"},
		}},
		"alarm-math.json": {Kind: dlqalarm.KindAlarm, Alarm: dlqalarm.Alarm{
			ARN: arn + "all-dlqs", Name: "all-dlqs", State: "ALARM", Previous: "INSUFFICIENT_DATA", Reason: "Threshold Crossed",
			Timestamp: "2026-02-17T11:53:08+0000", At: at.Truncate(time.Second),
			Queues: []string{"agent-tasks-dlq", "agent-tasks-ordered-dlq.fifo"},
		}},
		"alarm-composite.json": {Kind: dlqalarm.KindAlarm, Alarm: dlqalarm.Alarm{
			ARN: arn + "agent-tasks", Name: "agent-tasks", State: "ALARM", Previous: "OK",
			Reason:    arn + "agent-tasks-dlq-depth transitioned to ALARM at Tuesday 17 February, 2026 11:53:08 UTC",
			Timestamp: "2026-02-17T11:53:08.431+0000", At: at,
		}},
		"alarm-malformed.json": {Kind: dlqalarm.KindAlarm, Alarm: dlqalarm.Alarm{
			ARN: arn + "agent-tasks-dlq-depth", Name: "agent-tasks-dlq-depth", State: "ALARM", Timestamp: "yesterday",
		}},
		"schedule.json": {Kind: dlqalarm.KindSchedule},
		// An alarm's change that comes through EventBridge has another form.
		"eventbridge-alarm.json": {Kind: dlqalarm.KindOther},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, dlqalarm.ParseEvent(payload)); diff != "" {
				t.Errorf("ParseEvent (-want +got):\n%s", diff)
			}
		})
	}
	for _, payload := range []string{
		``, `{}`, `null`, `[]`, `"x"`, `{`, `{"source":1}`, `{"source":"aws.cloudwatch"}`,
		`{"source":"aws.cloudwatch","alarmData":null}`, `{"source":"aws.events","source":"aws.events"}`,
	} {
		if got := dlqalarm.ParseEvent([]byte(payload)); got.Kind != dlqalarm.KindOther {
			t.Errorf("ParseEvent(%s): got %+v, want kind %s", payload, got, dlqalarm.KindOther)
		}
	}
}

func FuzzEvent(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("testdata: %v, %v", files, err)
	}
	for _, file := range files {
		payload, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e := dlqalarm.ParseEvent(payload)
		switch e.Kind {
		case dlqalarm.KindAlarm:
		case dlqalarm.KindSchedule, dlqalarm.KindOther:
			if diff := cmp.Diff(dlqalarm.Alarm{}, e.Alarm); diff != "" {
				t.Errorf("an event of kind %s has an alarm:\n%s", e.Kind, diff)
			}
		default:
			t.Errorf("kind %q", e.Kind)
		}
		if again := dlqalarm.ParseEvent(payload); !cmp.Equal(e, again) {
			t.Errorf("not the same twice: %+v, %+v", e, again)
		}
	})
}
