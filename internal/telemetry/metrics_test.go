package telemetry_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentworker/internal/telemetry"
)

var update = flag.Bool("update", false, "write the golden files anew")

// What an invocation writes, byte for byte: other people's dashboards and alarms read it.
func TestGolden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it is midnight UTC 2000-01-01
		var out bytes.Buffer
		m := telemetry.NewMetrics("agentworker", &out)
		m.Count(telemetry.TasksSucceeded, "rag_query")
		m.Count(telemetry.TasksSucceeded, "rag_query")
		m.Time(telemetry.EndToEnd, "rag_query", 1234567*time.Microsecond)
		m.Time(telemetry.StepDuration, "rag_query", 500*time.Microsecond)
		m.Time(telemetry.StepDuration, "rag_query", 2*time.Second)
		m.Count(telemetry.TasksFailed, "")
		m.Count(telemetry.WillDeadLetter, "")
		m.Add(telemetry.Conflicts, "update_ticket", 3)
		<-time.After(1500 * time.Millisecond)
		if err := m.Flush(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "emf.golden.jsonl")
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

func TestManyValuesTakeSeveralLines(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]int{1: {1}, 99: {99}, 100: {100}, 101: {100, 1}, 200: {100, 100}, 250: {100, 100, 50}} {
		var out bytes.Buffer
		m := telemetry.NewMetrics("agentworker", &out)
		for i := range n {
			m.Time(telemetry.StepDuration, "rag_query", time.Duration(i)*time.Millisecond)
			m.Count(telemetry.TasksSucceeded, "rag_query")
		}
		if err := m.Flush(); err != nil {
			t.Fatal(err)
		}
		var got []int
		var next float64
		for i, d := range parse(t, out.Bytes()) {
			values := d.values(string(telemetry.StepDuration))
			got = append(got, len(values))
			for _, v := range values {
				if v != next {
					t.Fatalf("%d values: got %v, want %v next", n, v, next)
				}
				next++
			}
			_, counted := d.Members[string(telemetry.TasksSucceeded)]
			if counted != (i == 0) {
				t.Errorf("%d values: line %d counts tasks: %t, want that of the first line only", n, i+1, counted)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d values: got lines of %v, want %v", n, got, want)
		}
	}
}

// Whatever is added comes out once, in valid lines.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	t.Parallel()
	names := []telemetry.Name{telemetry.TasksSucceeded, telemetry.TasksRetried, telemetry.EndToEnd, telemetry.StepDuration}
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		m := telemetry.NewMetrics("agentworker", &out)
		want := map[string]float64{}
		for range rapid.IntRange(0, 300).Draw(t, "values") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			typ := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "type")
			value := float64(rapid.IntRange(-5, 1_000_000).Draw(t, "value"))
			m.Add(name, typ, value)
			want[fmt.Sprint(typ, " ", name)] += value
			if rapid.IntRange(0, 50).Draw(t, "flush") == 0 {
				if err := m.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := m.Flush(); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, d := range parse(t, out.Bytes()) {
			for _, metric := range d.AWS.CloudWatchMetrics[0].Metrics {
				for _, v := range d.values(metric.Name) {
					got[d.task()+" "+metric.Name] += v
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sums (-added +written):\n%s", diff)
		}
	})
}

func TestFlushStartsAnew(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	m := telemetry.NewMetrics("agentworker", &out)
	for range 2 {
		m.Count(telemetry.Duplicates, "rag_query")
		if err := m.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Flush(); err != nil {
		t.Fatal(err)
	}
	documents := parse(t, out.Bytes())
	if len(documents) != 2 {
		t.Fatalf("got %d lines, want 2: %s", len(documents), out.String())
	}
	for _, d := range documents {
		if got := d.values(string(telemetry.Duplicates)); !slices.Equal(got, []float64{1}) {
			t.Errorf("got %v, want 1 each time", got)
		}
	}
}

func TestNamespaceAndTime(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	m := telemetry.NewMetrics("my/agents", &out)
	m.Count(telemetry.DeadLetters, "rag_query")
	before := time.Now().UnixMilli()
	if err := m.Flush(); err != nil {
		t.Fatal(err)
	}
	after := time.Now().UnixMilli()
	documents := parse(t, out.Bytes())
	if len(documents) != 1 {
		t.Fatalf("got %d lines, want 1", len(documents))
	}
	if got := documents[0].AWS.CloudWatchMetrics[0].Namespace; got != "my/agents" {
		t.Errorf("namespace: got %q, want %q", got, "my/agents")
	}
	if got := documents[0].AWS.Timestamp; got < before || got > after {
		t.Errorf("timestamp: got %d, want milliseconds between %d and %d", got, before, after)
	}
}

func TestValuesThatCloudWatchDoesNotTakeAreDropped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	m := telemetry.NewMetrics("agentworker", &out)
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 2} {
		m.Add(telemetry.StepDuration, "rag_query", v)
		m.Add(telemetry.Conflicts, "rag_query", v)
	}
	if err := m.Flush(); err != nil {
		t.Fatalf("got %v, want the others written", err)
	}
	for _, d := range parse(t, out.Bytes()) {
		for _, name := range []telemetry.Name{telemetry.StepDuration, telemetry.Conflicts} {
			if got := d.values(string(name)); !slices.Equal(got, []float64{2}) {
				t.Errorf("%s: got %v, want 2", name, got)
			}
		}
	}
}

func TestNoMetrics(t *testing.T) {
	t.Parallel()
	var m *telemetry.Metrics
	m.Count(telemetry.TasksSucceeded, "rag_query")
	m.Time(telemetry.EndToEnd, "rag_query", time.Second)
	m.Add(telemetry.Conflicts, "rag_query", 1)
	if err := m.Flush(); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// oneCallALine is a writer that must not be called by two goroutines at once.
type oneCallALine struct {
	t     *testing.T
	lines []byte
}

func (w *oneCallALine) Write(p []byte) (int, error) {
	if bytes.Count(p, []byte("\n")) != 1 || p[len(p)-1] != '\n' {
		w.t.Errorf("got a call with %q, want one line", p)
	}
	w.lines = append(w.lines, p...) // a race when two goroutines write
	return len(p), nil
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	out := &oneCallALine{t: t}
	m := telemetry.NewMetrics("agentworker", out)
	const workers, each = 8, 200
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for range each {
				m.Count(telemetry.TasksSucceeded, fmt.Sprint(w%2))
				m.Time(telemetry.StepDuration, "x", time.Millisecond)
				if err := m.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var counted, timed float64
	for _, d := range parse(t, out.lines) {
		for _, v := range d.values(string(telemetry.TasksSucceeded)) {
			counted += v
		}
		timed += float64(len(d.values(string(telemetry.StepDuration))))
	}
	if counted != workers*each || timed != workers*each {
		t.Errorf("got %v counted, %v timed, want %d of each", counted, timed, workers*each)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestFlushReportsWhatItCouldNotWrite(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("agentworker", full{})
	m.Count(telemetry.TasksSucceeded, "rag_query")
	if err := m.Flush(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want %v", err, io.ErrShortWrite)
	}
}
