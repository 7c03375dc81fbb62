package providers_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"agentworker/internal/config"
	"agentworker/internal/emulator/lambda"
)

// BenchmarkColdStart starts the worker as it is deployed, until it asks for its first event. What is not chosen should cost
// nothing.
func BenchmarkColdStart(b *testing.B) {
	binary := os.Getenv("WORKER_BINARY")
	if binary == "" {
		binary = filepath.Join(b.TempDir(), "bootstrap")
		build := exec.CommandContext(b.Context(), "go", "build", "-tags", "lambda.norpc", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "agentworker/functions/worker")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("build the worker: %v\n%s", err, out)
		}
	}
	info, err := os.Stat(binary)
	if err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name   string
		choose func(*config.Worker)
	}{
		{"offline", func(*config.Worker) {}},
		{"bedrock", func(c *config.Worker) { c.Model = "bedrock:some-model" }},
		{"openai", func(c *config.Worker) { c.Model = "openai:some-model" }},
		{"knowledge base", func(c *config.Worker) { c.Retriever = "kb:ABCDEFGHIJ" }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c := worker
			bm.choose(&c)
			env := []string{"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local"}
			for k, v := range config.Variables(c) {
				env = append(env, k+"="+v)
			}
			var took []time.Duration
			for b.Loop() {
				f := lambda.New(lambda.Config{Name: "worker", Binary: binary, Env: env, Timeout: time.Minute, MemoryMiB: 256})
				began := time.Now()
				if err := f.Warm(context.Background()); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				b.StopTimer()
				_ = f.Close(context.Background())
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
			b.ReportMetric(float64(info.Size())/1e6, "MB")
		})
	}
}

var worker = config.Worker{
	Table: "table", QueueURL: "http://127.0.0.1:1/000000000000/tasks", OrderedQueueURL: "http://127.0.0.1:1/000000000000/tasks.fifo",
	Retries: 3, MaxReceiveCount: 5, PartialBatch: true, RecordRetention: 90 * 24 * time.Hour, MetricsNamespace: "agentworker",
}
