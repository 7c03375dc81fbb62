package telemetry_test

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/telemetry"
)

// document is one line in the embedded metric format.
type document struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
	Members map[string]jsontext.Value `json:",embed"`
}

// parse reads lines and holds each against the format's rules.
// Source: Amazon CloudWatch User Guide, "Specification: Embedded metric format".
func parse(t interface {
	Helper()
	Errorf(string, ...any)
}, out []byte,
) []document {
	t.Helper()
	var documents []document
	text, whole := strings.CutSuffix(string(out), "\n")
	if !whole {
		if len(out) > 0 {
			t.Errorf("the last line does not end: %q", out)
		}
		return nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		var d document
		if err := json.Unmarshal([]byte(line), &d, json.RejectUnknownMembers(true)); err != nil {
			t.Errorf("%q is not one JSON object: %v", line, err)
			continue
		}
		documents = append(documents, d)
		if len(line) > 1<<20 {
			t.Errorf("a line of %d bytes, want at most 1 MiB", len(line))
		}
		if len(d.AWS.CloudWatchMetrics) != 1 {
			t.Errorf("%q: got %d directives, want 1", line, len(d.AWS.CloudWatchMetrics))
			continue
		}
		directive := d.AWS.CloudWatchMetrics[0]
		if want := [][]string{{}, {"task"}}; cmp.Diff(want, directive.Dimensions) != "" {
			t.Errorf("%q: dimensions: got %q, want all tasks together, and each type: %q", line, directive.Dimensions, want)
		}
		if d.Members["task"].Kind() != '"' {
			t.Errorf("%q: the dimension's member is not text", line)
		}
		if n := len(directive.Metrics); n < 1 || n > 100 {
			t.Errorf("%q: got %d metrics, want 1 to 100", line, n)
		}
		if got, want := len(d.Members), len(directive.Metrics)+1; got != want {
			t.Errorf("%q: got %d members, want the %d that are declared", line, got, want)
		}
		for _, metric := range directive.Metrics {
			if n := len(d.values(metric.Name)); n < 1 || n > 100 {
				t.Errorf("%q: %s has %d values, want 1 to 100", line, metric.Name, n)
			}
			timed := metric.Name == string(telemetry.EndToEnd) || metric.Name == string(telemetry.StepDuration)
			if want := map[bool]string{true: "Milliseconds", false: "Count"}[timed]; metric.Unit != want {
				t.Errorf("%q: unit of %s: got %q, want %q", line, metric.Name, metric.Unit, want)
			}
		}
	}
	return documents
}

// values are those of a metric, nil when they are not a list of numbers.
func (d document) values(metric string) []float64 {
	var list []float64
	if json.Unmarshal(d.Members[metric], &list) != nil {
		return nil
	}
	return list
}

func (d document) task() string {
	var s string
	_ = json.Unmarshal(d.Members["task"], &s)
	return s
}
