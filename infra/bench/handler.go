package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"agentworker/infra/bench/contest"
	"agentworker/internal/batch"
	"agentworker/internal/sqsevent"
	"agentworker/internal/topology"
)

// handlers measures decoding, dispatch and encoding of a batch whose records need nothing done.
func (b *bench) handlers(ctx context.Context) error {
	all := map[string]lambda.Handler{
		"ours": handler(ours),
		// What a function gets that takes and returns the types of aws-lambda-go, as the baselines do.
		"lean": lambda.NewHandler(func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
			return events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}, nil
		}),
	}
	percent := map[string]int{"lean": 100} // of garbage, as GOGC: each as it is deployed
	var err error
	if percent["ours"], err = strconv.Atoi(topology.Default().Worker.Collector()["GOGC"]); err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for _, size := range []int{10, 1000} {
		payload := contest.Batches(size, 1, size)[0]
		perRecord := series{}
		for range b.rounds {
			for _, name := range []string{"ours", "lean"} {
				debug.SetGCPercent(percent[name])
				took, err := processorTime(func() error {
					for range 100_000 / size {
						if _, err := all[name].Invoke(ctx, payload); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				perRecord.add(name, float64(took.Nanoseconds())/100_000)
			}
		}
		for name := range all {
			put(&b.results.of(name).Handler, strconv.Itoa(size), perRecord.median(name))
		}
	}
	return nil
}

type handler func(context.Context, []byte) ([]byte, error)

func (h handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) { return h(ctx, payload) }

// ours is the worker without its worker: event, batch and answer.
func ours(ctx context.Context, payload []byte) ([]byte, error) {
	messages, err := sqsevent.Decode(payload)
	if err != nil {
		return nil, err
	}
	records := make([]batch.Record[*sqsevent.Record], len(messages))
	for i := range messages {
		records[i] = batch.Record[*sqsevent.Record]{ID: messages[i].MessageID, Value: &messages[i]}
	}
	failed := batch.Process(ctx, records, batch.Options{Concurrency: 32}, func(context.Context, batch.Record[*sqsevent.Record]) error { return nil })
	var ids []string
	for _, f := range failed {
		ids = append(ids, f.ID)
	}
	return sqsevent.Failures(ids)
}

// processorTime is what this process uses, garbage collection included, while do runs.
func processorTime(do func() error) (time.Duration, error) {
	runtime.GC()
	before, err := used()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := used()
	return after - before, err
}

func used() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read what was used: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// manyRecords measures a batch of 1,000 one-second records, 100 at once, and how memory grows with a batch.
func (b *bench) manyRecords(ctx context.Context) error {
	began := time.Now()
	failed := batch.Process(ctx, blanks(1000), batch.Options{Concurrency: 100}, func(ctx context.Context, _ batch.Record[int]) error {
		select {
		case <-time.After(time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if len(failed) > 0 {
		return errors.Join(ctx.Err(), failed[0].Err)
	}
	f := b.results.of("ours")
	f.ManyRecords = time.Since(began).Seconds()
	for _, size := range []int{1000, 100_000} {
		put(&f.ManyBytes, strconv.Itoa(size), memoryPerRecord(ctx, size))
	}
	return nil
}

func blanks(n int) []batch.Record[int] {
	records := make([]batch.Record[int], n)
	for i := range records {
		records[i] = batch.Record[int]{ID: strconv.Itoa(i)}
	}
	return records
}

// memoryPerRecord is what a batch needs while its first 100 records are at work and the others wait: heap and stacks beyond
// the records themselves.
func memoryPerRecord(ctx context.Context, size int) float64 {
	const concurrency = 100
	records := blanks(size)
	before := memory()
	var running atomic.Int32
	var during uint64
	full := make(chan struct{})
	batch.Process(ctx, records, batch.Options{Concurrency: concurrency}, func(context.Context, batch.Record[int]) error {
		if running.Add(1) == concurrency {
			during = memory()
			close(full)
		}
		<-full
		return nil
	})
	return float64(during-min(before, during)) / float64(size)
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
