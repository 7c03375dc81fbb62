package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// columns are the contestants in the order in which they are shown.
func columns() []string { return []string{"ours", "lean", "seed", "bare", "kumo"} }

// row is a line of a table.
type row struct {
	name, goal string
	met        func(r *results) bool // nil: there is no goal, or not here
	value      func(f *figures) float64
	format     string
}

// show prints the figures, each beside its goal. Goals that name another are ratios within this run.
func (r *results) show(out io.Writer) {
	_, _ = fmt.Fprintf(out, "\n%s, %d rounds, medians. Goals are for ours.\n", r.Machine, r.Rounds)
	for _, table := range []struct {
		title string
		rows  []row
	}{
		{"Worker: 1,000 rag_query over 20 threads of 50 turns, in batches of 10", workRows()},
		{"What a task costs in DynamoDB, by the turn of its thread", costRows()},
		{"Handler and start", handlerRows()},
		{"Local queue and chain", chainRows()},
	} {
		_, _ = fmt.Fprintf(out, "\n%s\n", table.title)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "\t%s\tgoal\t\n", strings.Join(columns(), "\t"))
		for _, row := range table.rows {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row.name, strings.Join(row.cells(r), "\t"), row.goal, row.verdict(r))
		}
		_ = w.Flush()
	}
	_, _ = fmt.Fprintln(out)
}

func (row row) cells(r *results) []string {
	var cells []string
	for _, name := range columns() {
		f := r.Contestants[name]
		if f == nil || row.value(f) == 0 {
			cells = append(cells, "–")
			continue
		}
		cells = append(cells, fmt.Sprintf(row.format, row.value(f)))
	}
	return cells
}

func (row row) verdict(r *results) string {
	f := r.Contestants["ours"]
	switch {
	case row.met == nil:
		return ""
	case f == nil || row.value(f) == 0:
		return "not measured"
	case row.met(r):
		return "met"
	}
	return "MISSED"
}

func atMost(limit float64, value func(*figures) float64) func(*results) bool {
	return func(r *results) bool { return value(r.of("ours")) <= limit }
}

func atLeast(limit float64, value func(*figures) float64) func(*results) bool {
	return func(r *results) bool { return value(r.of("ours")) >= limit }
}

// times compares ours with another contestant's.
func times(factor float64, other string, value func(*figures) float64) func(*results) bool {
	return func(r *results) bool { return value(r.of("ours")) <= factor*value(r.of(other)) }
}

func workRows() []row {
	cpu := func(f *figures) float64 { return f.CPU }
	from := func(turn string) func(*figures) float64 {
		return func(f *figures) float64 { return f.CPUByTurn[turn] }
	}
	peak := func(f *figures) float64 { return f.PeakRSS }
	slow := func(f *figures) float64 { return f.SlowBatch }
	flat := func(r *results) bool { return from("1000")(r.of("ours")) <= 1.1*from("50")(r.of("ours")) }
	return []row{
		{"CPU s per 1,000 tasks", "≤ 1.5 × lean", times(1.5, "lean", cpu), cpu, "%.2f"},
		{"  from turn 50 on", "", nil, from("50"), "%.2f"},
		{"  from turn 1,000 on", "≤ 1.1 × turn 50", flat, from("1000"), "%.2f"},
		{"peak MB", "≤ 30", atMost(30, peak), peak, "%.0f"},
		{"batch of 10, 5 ms more a request, ms", "≤ 25", atMost(25, slow), slow, "%.1f"},
	}
}

func costRows() []row {
	var rows []row
	add := func(name, format, goal string, value func(*figures) map[string]float64, ok func(at map[string]float64, turn string) bool) {
		for _, turn := range []string{"1", "1-50", "100", "1000", "10000"} {
			rows = append(rows, row{
				name + " at turn " + turn, goal,
				func(r *results) bool { return ok(value(r.of("ours")), turn) },
				func(f *figures) float64 { return value(f)[turn] }, format,
			})
		}
	}
	is := func(want float64) func(map[string]float64, string) bool {
		return func(at map[string]float64, turn string) bool { return at[turn] == want }
	}
	add("requests", "%.1f", "3", func(f *figures) map[string]float64 { return f.Requests }, is(3))
	add("write units", "%.1f", "7", func(f *figures) map[string]float64 { return f.WriteUnits }, is(7))
	add("bytes written", "%.0f", "± 10 % of turn 1", func(f *figures) map[string]float64 { return f.BytesWritten },
		func(at map[string]float64, turn string) bool {
			return at[turn] >= 0.9*at["1"] && at[turn] <= 1.1*at["1"]
		})
	// Of up to 20 checkpoints that are read for context, whatever the thread's length.
	add("read units", "%.1f", "≤ that at turn 100", func(f *figures) map[string]float64 { return f.ReadUnits },
		func(at map[string]float64, turn string) bool { return at[turn] <= at["100"] })
	return rows
}

func handlerRows() []row {
	var rows []row
	// Powertools for Lambda (TypeScript) needs 2.3 and 1.9 µs on a machine on which the default decoding of aws-lambda-go, which
	// lean has, needs 8.6: the goal is as far below that on this machine.
	for _, at := range []struct {
		size, goal string
		factor     float64
	}{{"10", "≤ 2.3/8.6 × lean", 2.3 / 8.6}, {"1000", "≤ 1.9/8.6 × lean", 1.9 / 8.6}} {
		value := func(f *figures) float64 { return f.Handler[at.size] }
		rows = append(rows, row{"handler, CPU ns a record in batches of " + at.size, at.goal, times(at.factor, "lean", value), value, "%.0f"})
	}
	cold := func(f *figures) float64 { return f.ColdStart }
	many := func(f *figures) float64 { return f.ManyRecords }
	bytes := func(size string) func(*figures) float64 {
		return func(f *figures) float64 { return f.ManyBytes[size] }
	}
	return append(rows,
		row{"exec to first next, ms", "≤ 1.6 × bare", times(1.6, "bare", cold), cold, "%.1f"},
		row{"binary, MB", "", nil, func(f *figures) float64 { return f.Binary }, "%.1f"},
		row{"1,000 one-second records, 100 at once, s", "10 to 11", atMost(11, many), many, "%.2f"},
		row{"  memory a record in a batch of 1,000, bytes", "", nil, bytes("1000"), "%.0f"},
		row{"  memory a record in a batch of 100,000, bytes", "", nil, bytes("100000"), "%.0f"},
	)
}

func chainRows() []row {
	ops := func(f *figures) float64 { return f.QueueOps }
	faster := func(r *results) bool { return ops(r.of("ours")) >= 1.5*ops(r.of("kumo")) }
	waiting := func(f *figures) float64 { return f.QueueBacklog }
	bytes := func(f *figures) float64 { return f.QueueBytes }
	ready := func(f *figures) float64 { return f.Ready }
	rate := func(f *figures) float64 { return f.TasksPerSecond }
	late := func(p func(*latency) float64) func(*figures) float64 {
		return func(f *figures) float64 {
			if f.Latency == nil {
				return 0
			}
			return p(f.Latency)
		}
	}
	p50, p99 := late(func(l *latency) float64 { return l.P50 }), late(func(l *latency) float64 { return l.P99 })
	return []row{
		{"send + receive + delete a second, 8 clients", "≥ 1.5 × kumo", faster, ops, "%.0f"},
		// On a machine of two processors the clients need most of them, whoever the server is.
		{"  CPU µs of the server for one", "", nil, func(f *figures) float64 { return f.QueueCPU }, "%.0f"},
		{"receive with 100,000 waiting, × with one", "≤ 1.2", atMost(1.2, waiting), waiting, "%.2f"},
		{"bytes a waiting message beyond its body", "< 1,000", atMost(999, bytes), bytes, "%.0f"},
		{"make run until ready, s", "< 3", atMost(3, ready), ready, "%.2f"},
		{"rag_query a second, API to result, 2 workers", "≥ 200", atLeast(200, rate), rate, "%.0f"},
		{"latency of a single task, p50, ms", "", nil, p50, "%.0f"},
		{"latency of a single task, p99, ms", "< 100", atMost(99, p99), p99, "%.0f"},
	}
}
