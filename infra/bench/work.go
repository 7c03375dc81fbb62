package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"agentworker/infra/bench/contest"
	"agentworker/internal/emulator/lambda"
)

// The workload: 1,000 tasks over so many threads.
const (
	threads   = 20
	turns     = 50
	batchSize = 10
	tasks     = threads * turns
)

// costs measures what reaches DynamoDB. It is the same in every round, and so measured once.
func (b *bench) costs(ctx context.Context) error {
	for _, c := range []contest.Contestant{contest.Ours(), contest.Lean(), contest.Seed()} {
		f := b.results.of(c.Name)
		note := func(key string, cost contest.Cost, tasks float64) {
			put(&f.Requests, key, float64(cost.Total())/tasks)
			put(&f.BytesWritten, key, float64(cost.Written)/tasks)
			put(&f.WriteUnits, key, cost.WriteUnits/tasks)
			put(&f.ReadUnits, key, cost.ReadUnits/tasks)
		}
		for _, turn := range []int{1, 100, 1000, 10_000} {
			cost, err := b.table.At(ctx, c, b.bin, turn)
			if errors.Is(err, contest.ErrTooLarge) {
				continue
			}
			if err != nil {
				return err
			}
			note(strconv.Itoa(turn), cost, 1)
		}
		var err error
		usage := b.table.Meter.Measure(func() {
			_, err = b.feed(ctx, c, b.table.Meter.URL(), contest.Batches(threads, turns, batchSize))
		})
		if err != nil {
			return err
		}
		note("1-50", contest.Cost{Usage: usage}, tasks)
	}
	return nil
}

// feed hands a workload to a new process of the contestant with a table of its own.
func (b *bench) feed(ctx context.Context, c contest.Contestant, endpoint string, payloads [][]byte) (use contest.Use, err error) {
	table, err := b.table.New(ctx)
	if err != nil {
		return use, err
	}
	defer func() { err = errors.Join(err, b.table.Drop(context.WithoutCancel(ctx), table)) }()
	return contest.Feed(ctx, c.Function(b.bin, endpoint, table), payloads)
}

// work measures processor time and memory, in threads of 1 to 50 turns, and in those that have had 49 or 999.
func (b *bench) work(ctx context.Context) error {
	all := []contest.Contestant{contest.Ours(), contest.Lean(), contest.Seed()}
	cpu, peak, from50, from1000 := series{}, series{}, series{}, series{}
	for range b.rounds {
		for _, c := range all {
			use, err := b.feed(ctx, c, b.table.Endpoint, contest.Batches(threads, turns, batchSize))
			if err != nil {
				return err
			}
			cpu.add(c.Name, use.CPU.Seconds()*1000/tasks)
			peak.add(c.Name, float64(use.PeakMiB))
		}
		for _, at := range []struct {
			turn int
			into series
		}{{50, from50}, {1000, from1000}} {
			used, err := b.longThreads(ctx, contest.Ours(), at.turn, tasks/2)
			if err != nil {
				return err
			}
			at.into.add("ours", used)
			// 10 turns more, and the seed's threads end. Its states of 400 KB can be too much for a machine that has other
			// things to do: this figure is then left out.
			if used, err = b.longThreads(ctx, contest.Seed(), at.turn, threads*5); err != nil {
				b.tell(" (seed, turn %d: %.100s…)", at.turn, err)
				continue
			}
			at.into.add("seed", used)
		}
	}
	for _, c := range all {
		f := b.results.of(c.Name)
		f.CPU, f.PeakRSS = cpu.median(c.Name), peak.median(c.Name)
	}
	for _, name := range []string{"ours", "seed"} {
		f := b.results.of(name)
		for turn, s := range map[string]series{"50": from50, "1000": from1000} {
			if len(s[name]) > 0 {
				put(&f.CPUByTurn, turn, s.median(name))
			}
		}
	}
	use, err := b.feed(ctx, contest.Bare(), b.table.Endpoint, contest.Batches(batchSize, 1, batchSize))
	b.results.of("bare").PeakRSS = float64(use.PeakMiB)
	return err
}

// longThreads gives the processor seconds per 1,000 tasks for so many tasks in threads that have had turn-1 turns. What
// another process used for its start and a first task of each thread is taken off, since there may be few tasks.
func (b *bench) longThreads(ctx context.Context, c contest.Contestant, turn, tasks int) (seconds float64, err error) {
	table, err := b.table.New(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.table.Drop(context.WithoutCancel(ctx), table)) }()
	f := c.Function(b.bin, b.table.Endpoint, table)
	start, err := contest.Feed(ctx, f, contest.Batches(threads, 1, batchSize))
	if err != nil {
		return 0, err
	}
	for i := range threads {
		if err := b.table.Grow(ctx, c, table, contest.Thread(i), turn-1); err != nil {
			return 0, err
		}
	}
	use, err := contest.Feed(ctx, f, contest.Batches(threads, tasks/threads, batchSize))
	if err != nil {
		return 0, err
	}
	return (use.CPU - start.CPU).Seconds() * 1000 / float64(tasks-threads), nil
}

// slowTable measures a batch of 10 when every request takes 5 ms longer.
func (b *bench) slowTable(ctx context.Context) error {
	all := []contest.Contestant{contest.Ours(), contest.Lean(), contest.Seed()}
	took := series{}
	b.table.Meter.Delay(5 * time.Millisecond)
	defer b.table.Meter.Delay(0)
	for range b.rounds {
		for _, c := range all {
			use, err := b.feed(ctx, c, b.table.Meter.URL(), contest.Batches(batchSize, 11, batchSize))
			if err != nil {
				return err
			}
			for _, d := range use.Durations[1:] { // the first one makes the connections
				took.add(c.Name, milliseconds(d))
			}
		}
	}
	for _, c := range all {
		b.results.of(c.Name).SlowBatch = took.median(c.Name)
	}
	return nil
}

// coldStarts measures from exec to the first request for an event.
func (b *bench) coldStarts(ctx context.Context) error {
	all := []contest.Contestant{contest.Bare(), contest.Ours(), contest.Lean(), contest.Seed()}
	took := series{}
	for range max(30, b.rounds) {
		for _, c := range all {
			f := lambda.New(c.Function(b.bin, b.table.Endpoint, "table"))
			began := time.Now()
			err := f.Warm(ctx)
			took.add(c.Name, milliseconds(time.Since(began)))
			if err = errors.Join(err, f.Close(ctx)); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		info, err := os.Stat(c.Binary(b.bin))
		if err != nil {
			return err
		}
		f := b.results.of(c.Name)
		f.ColdStart, f.Binary = took.median(c.Name), float64(info.Size())/1e6
	}
	return nil
}
