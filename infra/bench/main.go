// Command bench measures the worker, the local queue and the local chain beside what one would use instead, prints the
// figures with their goals and writes them to build/bench.json: make bench.
//
// Everything that is compared is measured in turns, a round each, and the figure is the median of the rounds. It wants a
// machine that does nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"agentworker/infra/bench/contest"
	"agentworker/internal/emulator/dynamodb"
)

// settings are what make bench reads from the environment.
type settings struct {
	Rounds int `env:"ROUNDS" envDefault:"5"`
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "make bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	out     io.Writer
	rounds  int
	bin     string // folder with the contestants' <name>/bootstrap
	tools   string
	table   *contest.Table
	results *results
}

func run(out io.Writer) (err error) {
	s, err := env.ParseAs[settings]()
	if err != nil || s.Rounds < 1 {
		return errors.New("ROUNDS must be a whole number, 1 or more")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{out: out, rounds: s.Rounds, bin: filepath.Join("build", "bench"), tools: ".tools", results: newResults(s.Rounds)}

	binary, err := dynamodb.Install(ctx, b.tools)
	if err != nil {
		return err
	}
	db, err := dynamodb.Start(ctx, dynamodb.Options{Binary: binary, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if b.table, err = contest.OpenTable(ctx, db.Endpoint()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.table.Close()) }()

	var failed error
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"requests and units of a task", b.costs},
		{"processor time and memory", b.work},
		{"batches with a slow table", b.slowTable},
		{"handler", b.handlers},
		{"cold starts", b.coldStarts},
		{"many records at once", b.manyRecords},
		{"queue", b.queues},
		{"chain", b.chain},
	} {
		began := time.Now()
		b.tell("%s …", part.name)
		if err := part.do(ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", part.name, err)) // the other parts' figures stand
		}
		b.tell(" %.0f s\n", time.Since(began).Seconds())
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	b.results.show(out)
	return errors.Join(failed, b.results.write(filepath.Join("build", "bench.json")))
}

func (b *bench) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, format, args...) // nobody to tell
}
