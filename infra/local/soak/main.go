// Command soak runs the chain under steady load and faults, and tells whether anything grows: make soak.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"agentworker/internal/emulator/drill"
)

// settings are what make soak reads from the environment.
type settings struct {
	Minutes int     `env:"MINUTES" envDefault:"30"`
	Rate    int     `env:"RATE" envDefault:"15"` // tasks a second
	Seed    *uint64 `env:"SEED"`
	Chaos   string  `env:"CHAOS"`
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "make soak:", err)
		os.Exit(1)
	}
}

// bytesPerTask is what the account keeps of a task until the end: its own job, calls, claims and faults, and its messages
// and those of its dead letters in the queues.
const bytesPerTask = 4 << 10

func run(out io.Writer) error {
	s, err := env.ParseAs[settings]()
	if err != nil {
		return fmt.Errorf("MINUTES, RATE and SEED must be whole numbers: %w", err)
	}
	if s.Minutes < 1 || s.Rate < 1 {
		return errors.New("MINUTES and RATE must be 1 or more")
	}
	if s.Seed == nil {
		seed := rand.Uint64N(1_000_000) // a short number to retype
		s.Seed = &seed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tell(out, "Soaking for %d minutes with %d tasks a second, seed %d\n", s.Minutes, s.Rate, *s.Seed)
	tell(out, "%8s %8s %8s %9s %9s %11s %6s\n", "time", "tasks", "queued", "heap MiB", "RSS MiB", "goroutines", "files")
	lasting := time.Duration(s.Minutes) * time.Minute
	report, samples, err := drill.Soak(ctx, drill.Config{Seed: *s.Seed, Chaos: s.Chaos}, s.Rate, lasting, lasting/20, func(m drill.Sample) {
		tell(out, "%8s %8d %8d %9.1f %9.1f %11d %6d\n", m.At.Round(time.Second), m.Tasks, m.Left, m.HeapMiB, m.RSSMiB, m.Goroutines, m.Files)
	})
	if err != nil {
		return err
	}
	report.Print(out)
	grew := drill.Growth(samples, bytesPerTask)
	for _, g := range grew {
		tell(out, "GREW %s\n", g)
	}
	switch {
	case report.Failed():
		return errors.New("promises were broken")
	case len(grew) > 0:
		return errors.New("not flat")
	}
	tell(out, "flat: memory, goroutines, file handles and queues do not grow with the time\n")
	return nil
}

func tell(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // nobody to tell
