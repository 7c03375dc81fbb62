package drill_test

import (
	"strings"
	"testing"
	"time"

	"agentworker/internal/emulator/drill"
)

func TestGrowthIsSeen(t *testing.T) {
	t.Parallel()
	series := func(change func(i int, s *drill.Sample)) []drill.Sample {
		var list []drill.Sample
		for i := range 21 {
			s := drill.Sample{At: time.Duration(i) * time.Minute, Tasks: 100 * i, Left: 40, HeapMiB: 30, RSSMiB: 90, Goroutines: 120, Files: 60}
			if i == 20 {
				s.Left = 0
			}
			change(i, &s)
			list = append(list, s)
		}
		return list
	}
	for _, c := range []struct {
		what   string
		change func(i int, s *drill.Sample)
	}{
		{"", func(int, *drill.Sample) {}},
		{"", func(i int, s *drill.Sample) { s.HeapMiB += 0.3 * float64(i) }}, // what the account keeps
		{"heap", func(i int, s *drill.Sample) { s.HeapMiB += 3 * float64(i) }},
		{"resident memory", func(i int, s *drill.Sample) { s.RSSMiB += 8 * float64(i) }},
		{"goroutines", func(i int, s *drill.Sample) { s.Goroutines += 10 * i }},
		{"file handles", func(i int, s *drill.Sample) { s.Files += 5 * i }},
		{"messages on the queues", func(i int, s *drill.Sample) { s.Left += 10 * i % 200 }},
		{"left at the end", func(i int, s *drill.Sample) { s.Left = 40 }},
	} {
		got := strings.Join(drill.Growth(series(c.change), 4096), "; ")
		if (got == "") != (c.what == "") || !strings.Contains(got, c.what) {
			t.Errorf("growth: got %q, want %q", got, c.what)
		}
	}
	if got := drill.Growth(nil, 0); len(got) == 0 {
		t.Error("no samples are taken for flat")
	}
}
