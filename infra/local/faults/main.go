// Command faults is the drill: make faults.
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

	"github.com/caarlos0/env/v11"
	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"

	"agentworker/internal/emulator/drill"
)

// settings are what make faults reads from the environment.
type settings struct {
	Tasks   int     `env:"TASKS" envDefault:"10000"`
	Seed    *uint64 `env:"SEED"`
	Chaos   string  `env:"CHAOS"`
	Workers int     `env:"WORKERS" envDefault:"8"`
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "make faults:", err)
		os.Exit(1)
	}
}

var errBroken = errors.New("promises were broken")

func run(out io.Writer) error {
	s, err := env.ParseAs[settings]()
	if err != nil {
		return fmt.Errorf("TASKS, SEED and WORKERS must be whole numbers: %w", err)
	}
	if s.Tasks < 1 || s.Workers < 1 {
		return errors.New("TASKS and WORKERS must be 1 or more")
	}
	if s.Seed == nil {
		seed := rand.Uint64N(1_000_000) // a short number to retype
		s.Seed = &seed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tell(out, "Drilling with %d tasks; the same again: make faults SEED=%d TASKS=%d\n", s.Tasks, *s.Seed, s.Tasks)
	bar := progress(s.Tasks)
	report, err := drill.Run(ctx, drill.Config{
		Tasks: s.Tasks, Seed: *s.Seed, Chaos: s.Chaos, Workers: s.Workers,
		Progress: func(_, done int) { _ = bar.Set(done) }, // nobody looks
	})
	_ = bar.Exit()
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return err
	}
	report.Print(out)
	if report.Failed() {
		return errBroken
	}
	return nil
}

// progress is a bar on a terminal, and nothing in a log file.
func progress(tasks int) *progressbar.ProgressBar {
	terminal := isatty.IsTerminal(os.Stderr.Fd())
	return progressbar.NewOptions(tasks,
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetVisibility(terminal),
		progressbar.OptionSetDescription("tasks off their queues"), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth())
}

func tell(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // nobody to tell
