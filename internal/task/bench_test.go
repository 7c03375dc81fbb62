package task_test

import (
	"testing"
	"time"
)

// BenchmarkDecode reads a message off the queue, as for every delivery.
func BenchmarkDecode(b *testing.B) {
	r := newRegistry(b)
	body := []byte(`{"task":"rag_query","task_id":"th-1.01K7ZQ4V3M8X2N5B6C7D8E9F0G","thread_id":"th-1","question":"What is a dead-letter queue?"}`)
	at := time.UnixMilli(1795979038390)
	if _, err := r.Decode(body, "m", at); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = r.Decode(body, "m", at)
	}
}
