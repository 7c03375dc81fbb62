// Command rehearse deploys the real CDK app into a local AWS and drives what was deployed. The local AWS is MiniStack,
// which runs the functions' real binaries behind its own API Gateway, queues and mappings. Nothing is deployed anywhere
// else, and nothing is left running or lying about: what a killed run could not clean up, the next one does.
//
// Where MiniStack deviates from AWS, it is said at the place that makes up for it; the app knows nothing of it. `make
// rehearse` builds and starts it. It needs Linux, since MiniStack starts the functions' Linux binaries on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

func main() {
	// What is started here is to die with this thread, which lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	began := time.Now()
	err := rehearse(ctx, filepath.Join(".tools", "rehearse"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nrehearse: FAILED after %v: %v\n", time.Since(began).Round(time.Second), err)
		os.Exit(1)
	}
	fmt.Printf("\nrehearse: OK, %v\n", time.Since(began).Round(time.Second))
}

// rehearse does everything, in a folder of its own.
func rehearse(ctx context.Context, dir string, out io.Writer) (err error) {
	if runtime.GOOS != "linux" {
		return errors.New("the functions are Linux binaries, which MiniStack starts on this machine: rehearse on Linux")
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if free, err := lock.TryLock(); err != nil || !free {
		return errors.Join(errors.New("another rehearsal is under way"), err)
	}
	defer func() { _ = lock.Unlock() }()
	work := filepath.Join(dir, "work")
	if err := cleanUp(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o750); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp(work)) }()

	r := &rehearsal{out: out}
	err = r.step("local AWS starts, on loopback only", func() (err error) {
		r.aws, err = startMiniStack(ctx, work)
		return err
	})
	if err != nil {
		return err
	}
	r.cdk = newCDK(work, r.aws.url)
	if err := r.play(ctx); err != nil {
		return fmt.Errorf("%w\n\nthe local AWS wrote last:\n%s", err, r.aws.lastLines())
	}
	return nil
}

// rehearsal is a run.
type rehearsal struct {
	out   io.Writer
	aws   *miniStack
	cdk   *cdk
	stack *deployed
}

// step does one thing and says so.
func (r *rehearsal) step(what string, do func() error) error {
	began := time.Now()
	err := do()
	took := fmt.Sprintf("%.1f s", time.Since(began).Seconds())
	if err != nil {
		_, _ = fmt.Fprintf(r.out, "FAIL  %-62s %7s\n", what, took)
		return fmt.Errorf("%s: %w", what, err)
	}
	_, _ = fmt.Fprintf(r.out, "ok    %-62s %7s\n", what, took)
	return nil
}

const stage = "rehearsal"

// play is the life of a stack.
func (r *rehearsal) play(ctx context.Context) error {
	var first, again outputs
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"cdk bootstrap", func() error { return r.cdk.bootstrap(ctx) }},
		{"cdk deploy", func() (err error) {
			if first, _, err = r.cdk.deploy(ctx, stage); err == nil {
				r.stack, err = newDeployed(r.aws.url, first)
			}
			return err
		}},
		{"the API takes signed requests only", func() error { return r.stack.authorization(ctx) }},
		{"a question is answered, and its steps are in the table", func() error { return r.stack.question(ctx) }},
		{"a ticket moves through its statuses in order", func() error { return r.stack.tickets(ctx) }},
		{"agentctl finds the stack, asks, shows, measures and deletes", func() error { return r.agentctl(ctx) }},
		{"agentctl doctor finds nothing but what MiniStack does not do", func() error { return r.doctor(ctx) }},
		{"a poison message ends in the dead-letter queue", func() error { return r.stack.poison(ctx) }},
		{"dlqalarm tells what lies there", func() error { return r.stack.alarm(ctx) }},
		{"cdk deploy again changes nothing", func() error {
			_, said, err := r.cdk.deploy(ctx, stage)
			return errors.Join(err, contains(said, "(no changes)"))
		}},
		{"cdk deploy with another setting updates in place", func() (err error) {
			if again, _, err = r.cdk.deploy(ctx, stage, "workerMemoryMiB=512"); err != nil {
				return err
			}
			return errors.Join(first.same(again), r.stack.memory(ctx, 512), r.stack.stillAnswered(ctx))
		}},
		{"another stage lives beside it", func() error {
			other, _, err := r.cdk.deploy(ctx, "other")
			if err != nil {
				return err
			}
			return errors.Join(first.disjoint(other), r.cdk.destroy(ctx, "other"), r.stack.stillAnswered(ctx))
		}},
		{"cdk destroy leaves table and queues, and nothing else", func() error {
			if err := r.cdk.destroy(ctx, stage); err != nil {
				return err
			}
			return r.stack.remains(ctx)
		}},
	} {
		if err := r.step(s.what, s.do); err != nil {
			return err
		}
	}
	return nil
}
