// Package contest puts several workers to the same work: ours, and what one would use instead. Each is a Lambda function's
// binary, fed over the Runtime API as Lambda feeds it, against a local DynamoDB.
package contest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json"

	"agentworker/internal/config"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/topology"
)

// Contestant is one worker.
type Contestant struct {
	Name string
	// Source is the Go package of its binary.
	Source string
	// env is what its function has in its environment besides what all have.
	env map[string]string
	// state makes out of the item that the first turn has left those that a thread of so many turns has.
	state func(item, int) []item
}

// Ours is the worker that deploys. Its model and documents are the offline ones, which answer at once from what is compiled
// in: choosing passages and sentences is part of what is measured.
func Ours() Contestant {
	return Contestant{Name: "ours", Source: "./functions/worker", env: topology.Default().Worker.Collector(), state: checkpoints}
}

// Lean sends the same requests and does nothing else.
func Lean() Contestant {
	return Contestant{Name: "lean", Source: "./infra/bench/baseline/lean", state: checkpoints}
}

// Seed is the usual first design: read the whole state, append, write it back.
func Seed() Contestant {
	return Contestant{Name: "seed", Source: "./infra/bench/baseline/seed", state: wholeState}
}

// Bare does nothing.
func Bare() Contestant { return Contestant{Name: "bare", Source: "./infra/bench/baseline/bare"} }

// Binary is where the contestant's executable lies below a folder.
func (c Contestant) Binary(dir string) string {
	return filepath.Join(dir, filepath.Base(c.Source), "bootstrap")
}

// Function describes the contestant to the local Lambda. dir is the folder with the binaries, endpoint where it finds
// DynamoDB.
func (c Contestant) Function(dir, endpoint, table string) lambda.Config {
	stack := topology.Default()
	const unused = "http://127.0.0.1:1/000000000000/" // a task that succeeds needs no queue
	variables := config.Variables(config.Worker{
		Table: table, QueueURL: unused + "tasks", OrderedQueueURL: unused + "tasks.fifo",
		Retries: stack.Retries, MaxReceiveCount: stack.Tasks.MaxReceiveCount, PartialBatch: true,
		RecordRetention: stack.RecordRetention, MetricsNamespace: stack.MetricsNamespace,
	})
	env := []string{"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_ENDPOINT_URL_DYNAMODB=" + endpoint}
	for _, some := range []map[string]string{variables, c.env} {
		for name, value := range some {
			env = append(env, name+"="+value)
		}
	}
	return lambda.Config{Name: "worker", Binary: c.Binary(dir), Env: env, Timeout: stack.Worker.Timeout, MemoryMiB: stack.Worker.MemoryMiB}
}

// Use is what a process of a contestant has used.
type Use struct {
	CPU       time.Duration // user and system, from exec to the end
	PeakMiB   int           // of resident memory
	Durations []time.Duration
	Logged    int // bytes that it wrote to its log
}

// Feed starts a process of the contestant, hands it the events, one after the other, and ends it. A record that is not done
// is an error. The process is warm when the first event comes.
func Feed(ctx context.Context, f lambda.Config, payloads [][]byte) (Use, error) {
	ended := make(chan *os.ProcessState, 1)
	var use Use
	f.Ended = func(s *os.ProcessState) { ended <- s }
	f.Output = func(l lambda.Line) {
		if l.Stream != lambda.Platform {
			use.Logged += len(l.Text) + 1
		}
	}
	function := lambda.New(f)
	err := feed(ctx, function, payloads, &use)
	err = errors.Join(err, function.Close(context.WithoutCancel(ctx)))
	if err != nil {
		return use, err
	}
	state := <-ended
	use.CPU = state.UserTime() + state.SystemTime()
	return use, nil
}

func feed(ctx context.Context, f *lambda.Function, payloads [][]byte, use *Use) error {
	if err := f.Warm(ctx); err != nil {
		return err
	}
	for i, p := range payloads {
		began := time.Now()
		result, err := f.Invoke(ctx, p)
		if err != nil {
			return err
		}
		use.Durations = append(use.Durations, time.Since(began))
		use.PeakMiB = max(use.PeakMiB, result.MaxMemoryMiB)
		if err := done(result); err != nil {
			return fmt.Errorf("batch %d: %w", i, err)
		}
	}
	return nil
}

// done is nil when every record of the batch is.
func done(r lambda.Result) error {
	if r.FunctionError != "" {
		return fmt.Errorf("the function failed: %s", r.Payload)
	}
	var answer events.SQSEventResponse
	if err := json.Unmarshal(r.Payload, &answer); err != nil {
		return fmt.Errorf("answer %s: %w", r.Payload, err)
	}
	if n := len(answer.BatchItemFailures); n > 0 {
		return fmt.Errorf("%d records failed; the log ends with %s", n, r.LogTail)
	}
	return nil
}
