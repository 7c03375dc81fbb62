package main

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// results is what stands in build/bench.json.
type results struct {
	At          time.Time           `json:"at"`
	Machine     string              `json:"machine"`
	Rounds      int                 `json:"rounds"`
	Contestants map[string]*figures `json:"contestants"`
}

// figures of one contestant; those that were not measured for it are left out. Maps are by turn, or by batch size. "1-50" is
// the mean over a workload of 1,000 tasks: 20 threads of 50 turns.
type figures struct {
	CPU            float64            `json:"cpu_s_per_1000_tasks,omitzero"`
	CPUByTurn      map[string]float64 `json:"cpu_s_per_1000_tasks_from_turn,omitempty"`
	PeakRSS        float64            `json:"peak_rss_mb,omitzero"`
	Requests       map[string]float64 `json:"requests_per_task,omitempty"`
	BytesWritten   map[string]float64 `json:"bytes_written_per_task,omitempty"`
	WriteUnits     map[string]float64 `json:"wcu_per_task,omitempty"`
	ReadUnits      map[string]float64 `json:"rcu_per_task,omitempty"`
	Handler        map[string]float64 `json:"handler_ns_per_record,omitempty"`
	ColdStart      float64            `json:"cold_start_ms,omitzero"`
	Binary         float64            `json:"binary_mb,omitzero"`
	SlowBatch      float64            `json:"batch10_5ms_ms,omitzero"`
	ManyRecords    float64            `json:"batch1000_1s_at_100_s,omitzero"`
	ManyBytes      map[string]float64 `json:"batch_bytes_per_record,omitempty"` // of memory beyond the batch itself
	TasksPerSecond float64            `json:"tasks_per_s,omitzero"`
	Latency        *latency           `json:"latency_ms,omitempty"`
	Ready          float64            `json:"ready_s,omitzero"`
	QueueOps       float64            `json:"queue_ops_per_s,omitzero"` // send, receive and delete of one message
	QueueCPU       float64            `json:"queue_server_cpu_us_per_op,omitzero"`
	QueueBacklog   float64            `json:"queue_receive_with_100000_waiting_ratio,omitzero"`
	QueueBytes     float64            `json:"queue_bytes_per_waiting_message,omitzero"` // beyond its body
}

type latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func newResults(rounds int) *results {
	return &results{
		At: time.Now().UTC().Truncate(time.Second), Rounds: rounds, Contestants: map[string]*figures{},
		Machine: runtime.GOOS + "/" + runtime.GOARCH + ", " + strconv.Itoa(runtime.NumCPU()) + " processors, " + runtime.Version(),
	}
}

// of is the contestant's figures, which it makes if need be.
func (r *results) of(name string) *figures {
	if r.Contestants[name] == nil {
		r.Contestants[name] = &figures{}
	}
	return r.Contestants[name]
}

func (r *results) write(path string) error {
	text, err := json.Marshal(r, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// put sets a value in a map that may not be there yet.
func put(m *map[string]float64, key string, value float64) {
	if *m == nil {
		*m = map[string]float64{}
	}
	(*m)[key] = value
}

// series collects what the rounds gave, by contestant.
type series map[string][]float64

func (s series) add(name string, value float64) { s[name] = append(s[name], value) }

func (s series) median(name string) float64 { return percentile(s[name], 0.5) }

// percentile of some values, at least one, p between 0 and 1.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); p == 0.5 && n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
