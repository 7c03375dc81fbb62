package drill

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"agentworker/internal/emulator/chaos"
)

// Report is the account of a drill.
type Report struct {
	Seed  uint64
	Tasks int
	Took  time.Duration

	Lost         int // accepted tasks that neither succeeded nor were dead-lettered for the planted reason
	Doubled      int // whatever took effect twice
	Planted      int // tasks that cannot succeed
	DeadLettered int // of these, in a dead-letter queue with the reason in their record
	Calls        int // of steps to the outside, that were really made
	Repeated     int // of these, made again under the same effect key
	Interrupted  int // of these, with a fault between the call and its commit

	Attempts   int
	Retries    int64  // of clients' requests
	Pauses     int    // that tasks asked for
	Early      int    // of these, after which the task came back too early
	TimedOut   int    // invocations whose time ran out although nothing froze their process
	Plan       string // of the faults
	Injections map[chaos.Kind]int
	// Violations are broken promises, each with the task's id where it has one.
	Violations []string
}

// Failed tells whether a promise was broken.
func (r *Report) Failed() bool { return len(r.Violations) > 0 }

// Idle are the kinds of fault that were planned and did not strike.
func (r *Report) Idle() []chaos.Kind {
	plan, err := chaos.Parse(r.Plan)
	if err != nil || plan == nil {
		return nil
	}
	return slices.DeleteFunc(plan.Kinds(), func(k chaos.Kind) bool { return r.Injections[k] > 0 })
}

// Last is the last line.
func (r *Report) Last() string {
	return fmt.Sprintf("%d tasks: %d lost, %d doubled, %d dead-lettered of %d planted, %d calls repeated of %d interrupted",
		r.Tasks, r.Lost, r.Doubled, r.DeadLettered, r.Planted, r.Repeated, r.Interrupted)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// mostViolations is how many are printed.
const mostViolations = 50

// Print writes the report; the last line is [Report.Last].
func (r *Report) Print(w io.Writer) {
	_, _ = io.WriteString(w, r.text()) // nobody to tell
}

func (r *Report) text() string {
	var w strings.Builder
	for i, v := range r.Violations {
		if i == mostViolations {
			fmt.Fprintf(&w, "… and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintln(&w, "BROKEN", v)
	}
	var faults []string
	for _, kind := range slices.Sorted(maps.Keys(r.Injections)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, r.Injections[kind]))
	}
	fmt.Fprintf(&w, "seed %d, %v: %d attempts, %d calls; %d of %d pauses cut short, %d unplanned timeouts; clients sent %d requests again; faults: %s\n",
		r.Seed, r.Took.Round(100*time.Millisecond), r.Attempts, r.Calls, r.Early, r.Pauses, r.TimedOut, r.Retries, strings.Join(faults, ", "))
	fmt.Fprintln(&w, r.Last())
	return w.String()
}
