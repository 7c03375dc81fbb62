package engine_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"agentworker/internal/emulator/sqs/engine"
)

// BenchmarkSendReceiveDelete runs one message through its life while so many others wait.
func BenchmarkSendReceiveDelete(b *testing.B) {
	for _, backlog := range []int{0, 1_000, 100_000} {
		for _, name := range []string{"standard", "ordered.fifo"} {
			b.Run(fmt.Sprintf("%s/backlog=%d", name, backlog), func(b *testing.B) {
				b.ReportAllocs()
				e := open(b, engine.Options{InFlightLimit: 1 << 30})
				create(b, e, name)
				for i := range backlog {
					send(b, e, name, i)
				}
				b.ResetTimer()
				for i := range b.N {
					send(b, e, name, backlog+i)
					got, err := e.Receive(b.Context(), name, engine.Demand{Max: 1})
					if err != nil || len(got) != 1 {
						b.Fatalf("received %d messages, error %v, want one", len(got), err)
					}
					if err := e.Delete(name, got[0].ReceiptHandle); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSend measures acknowledged sends from many clients.
func BenchmarkSend(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run("durable="+strconv.FormatBool(durable), func(b *testing.B) {
			b.ReportAllocs()
			opts := engine.Options{}
			if durable {
				opts.Dir = b.TempDir()
			}
			e := open(b, opts)
			create(b, e, "standard")
			var n atomic.Int64
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					send(b, e, "standard", int(n.Add(1)))
				}
			})
		})
	}
}

func open(tb testing.TB, opts engine.Options) *engine.Engine {
	tb.Helper()
	e, err := engine.Open(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

func create(tb testing.TB, e *engine.Engine, name string) {
	tb.Helper()
	attributes := map[string]string{}
	if name == "ordered.fifo" {
		attributes["FifoQueue"] = "true"
	}
	if err := e.CreateQueue(name, attributes, nil); err != nil {
		tb.Fatal(err)
	}
}

func send(tb testing.TB, e *engine.Engine, name string, i int) {
	tb.Helper()
	_, err := e.Send(name, engine.Outgoing{
		Body: "body", GroupID: "g" + strconv.Itoa(i%1000), DeduplicationID: strconv.Itoa(i),
	})
	if err != nil {
		tb.Error(err)
	}
}
