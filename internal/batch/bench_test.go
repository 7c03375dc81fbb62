package batch_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"agentworker/internal/batch"
)

// BenchmarkProcess is what a batch costs whose records need nothing done.
func BenchmarkProcess(b *testing.B) {
	for _, size := range []int{10, 1000} {
		for _, groups := range []int{0, 5} { // 0: each record on its own
			b.Run(fmt.Sprintf("records=%d/groups=%d", size, groups), func(b *testing.B) {
				records := make([]batch.Record[int], size)
				for i := range records {
					records[i] = batch.Record[int]{ID: strconv.Itoa(i), Value: i}
					if groups > 0 {
						records[i].Group = strconv.Itoa(i % groups)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					if failed := batch.Process(b.Context(), records, batch.Options{Concurrency: 32}, func(context.Context, batch.Record[int]) error { return nil }); len(failed) > 0 {
						b.Fatalf("%d records failed", len(failed))
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/record")
			})
		}
	}
}
