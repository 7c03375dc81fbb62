package drill

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Sample is how the chain stood at one moment of a soak.
type Sample struct {
	At         time.Duration // since the start
	Tasks      int           // accepted so far
	Left       int           // messages on the two queues
	HeapMiB    float64       // in use after a collection
	RSSMiB     float64       // of this process; 0 where the system does not tell
	Goroutines int
	Files      int // open file handles of this process; 0 where the system does not tell
}

// Soak keeps a drill's tasks coming, perSecond of them, for the given time, and takes a sample every so often and at the end,
// when the queues have run empty. Then it accounts for every task as [Run] does.
func Soak(ctx context.Context, c Config, perSecond int, lasting, every time.Duration, sampled func(Sample)) (_ *Report, _ []Sample, err error) {
	c.Tasks = int(lasting.Seconds() * float64(perSecond))
	c.Longest = lasting + 10*time.Minute
	c = c.withDefaults()
	began := time.Now()
	d, err := start(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if stopErr := d.stop(); err == nil {
			err = stopErr
		}
	}()
	d.client.pace = time.NewTicker(time.Second / time.Duration(perSecond))
	defer d.client.pace.Stop()

	var samples []Sample
	take := func() {
		s := d.sample(time.Since(began))
		samples = append(samples, s)
		sampled(s)
	}
	sampling, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			take()
			select {
			case <-tick.C:
			case <-sampling.Done():
				return
			}
		}
	}()
	ended, err := d.work(ctx)
	stop()
	<-done
	if err != nil {
		return nil, samples, err
	}
	take()
	d.chaos.Stop()
	report, err := d.account(ctx, ended)
	if err != nil {
		return nil, samples, fmt.Errorf("account: %w", err)
	}
	report.Took = time.Since(began)
	return report, samples, nil
}

func (d *drill) sample(at time.Duration) Sample {
	runtime.GC() // what is left is what is held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := Sample{
		At: at, Tasks: int(d.client.accepted.Load()), Left: int(d.client.left.Load()),
		HeapMiB: float64(m.HeapInuse) / (1 << 20), Goroutines: runtime.NumGoroutine(),
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Files = len(files)
	}
	if status, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(status)); len(fields) > 1 {
			pages, _ := strconv.ParseFloat(fields[1], 64) // the kernel's own number
			s.RSSMiB = pages * float64(os.Getpagesize()) / (1 << 20)
		}
	}
	return s
}

// Growth is what grew from the second quarter of a soak to its last, where the time before is left for warming up: each
// in a sentence, none when everything is flat.
//
// What the soak itself keeps for its account, a line for each call and fault, is part of the heap; allowed is
// how much of it a task may take, in bytes.
func Growth(samples []Sample, allowed int) []string {
	if len(samples) < 8 {
		return []string{fmt.Sprintf("%d samples are too few to tell: 8 are needed", len(samples))}
	}
	n := len(samples)
	early, late := samples[n/4:n/2], samples[n-n/4-1:n-1]
	tasks := late[len(late)-1].Tasks - early[0].Tasks
	var grew []string
	check := func(what string, of func(Sample) float64, slack float64) {
		from, to := mean(early, of), mean(late, of)
		if to > from*1.25+slack {
			grew = append(grew, fmt.Sprintf("%s grew from %.1f to %.1f", what, from, to))
		}
	}
	check("heap (MiB)", func(s Sample) float64 { return s.HeapMiB }, float64(tasks*allowed)/(1<<20)+4)
	check("resident memory (MiB)", func(s Sample) float64 { return s.RSSMiB }, float64(2*tasks*allowed)/(1<<20)+16)
	check("goroutines", func(s Sample) float64 { return float64(s.Goroutines) }, 20)
	check("file handles", func(s Sample) float64 { return float64(s.Files) }, 20)
	check("messages on the queues", func(s Sample) float64 { return float64(s.Left) }, 50)
	if last := samples[n-1]; last.Left > 0 {
		grew = append(grew, fmt.Sprintf("%d messages are left at the end", last.Left))
	}
	return grew
}

func mean(samples []Sample, of func(Sample) float64) float64 {
	total := 0.0
	for _, s := range samples {
		total += of(s)
	}
	return total / float64(len(samples))
}
