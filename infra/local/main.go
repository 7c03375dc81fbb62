// Command local runs the whole chain on this machine: make run.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"agentworker/internal/config"
	"agentworker/internal/emulator"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/topology"
)

// settings are what make run reads from the environment.
type settings struct {
	Port    int    `env:"PORT" envDefault:"8080"`
	AWSPort int    `env:"AWS_PORT" envDefault:"4566"`
	DataDir string `env:"DATA_DIR"`
	Workers int    `env:"WORKERS" envDefault:"2"`
	Chaos   string `env:"CHAOS"`

	Retriever     string   `env:"RETRIEVER"`
	AllowedTopics []string `env:"ALLOWED_TOPICS"`

	DynamoDBEndpoint string `env:"AWS_ENDPOINT_URL_DYNAMODB"`
	SQSEndpoint      string `env:"AWS_ENDPOINT_URL_SQS"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

func run() error {
	began := time.Now()
	// The chain's own heap is so small that its collector would run many times a second, for a fifth of the processor time.
	debug.SetGCPercent(400)
	s, err := config.Load[settings]()
	if err != nil {
		return err
	}
	// The first signal stops the chain in good order, the second at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	console := newConsole(os.Stdout)
	faults, err := injector(s.Chaos, console)
	if err != nil {
		return err
	}
	account := &account{}
	o, err := reach(ctx, s.Retriever)
	if err != nil {
		return err
	}
	chain, err := emulator.Start(ctx, emulator.Config{
		Stack: topology.Default(),
		Port:  s.Port, AWSPort: s.AWSPort, DataDir: s.DataDir, Workers: s.Workers,
		BinDir: filepath.Join("build", "local"), ToolsDir: ".tools",
		DynamoDBEndpoint: s.DynamoDBEndpoint, SQSEndpoint: s.SQSEndpoint,
		AllowedTopics: s.AllowedTopics, WorkerEnv: o.env, WorkerRegion: o.region, Chaos: faults,
		Logger: slog.New(console.handler), Output: console.line, Notify: console.notification, Batch: account.add,
	})
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("stopped before it was up")
		}
		return err
	}
	console.print(welcome(chain, s, time.Since(began)))

	var failure error
	select {
	case <-ctx.Done():
		stop()
		console.print("\nStopping: what is under way is finished or handed back. Once more Ctrl-C ends it at once.")
	case failure = <-chain.Failed():
		failure = fmt.Errorf("ended by itself: %w", failure)
	}
	failure = errors.Join(failure, chain.Stop())
	console.print(account.farewell(s.DataDir))
	return failure
}

// injector breaks things as CHAOS says, and tells so on the console; nil: nothing does.
func injector(text string, console *console) (*chaos.Injector, error) {
	plan, err := chaos.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("CHAOS cannot be used: %w", err)
	}
	if plan == nil {
		return nil, nil //nolint:nilnil // no faults, no injector
	}
	console.print("Things will go wrong on purpose, and again with CHAOS=" + plan.String())
	return chaos.New(*plan, chaos.Watch{Injected: console.injection}), nil
}

// Validate says what is wrong with the values beyond their form.
func (s settings) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(s.Port >= 0 && s.Port <= 65535, "PORT is %d; set 1 to 65535, or 0 for any free one", s.Port)
	check(s.AWSPort >= 0 && s.AWSPort <= 65535, "AWS_PORT is %d; set 1 to 65535, or 0 for any free one", s.AWSPort)
	check(s.Port != s.AWSPort || s.Port == 0, "AWS_PORT is %d, as PORT is; set two different ones", s.AWSPort)
	check(s.Workers >= 1 && s.Workers <= 100, "WORKERS is %d; set 1 to 100", s.Workers)
	check(isURL(s.DynamoDBEndpoint), "AWS_ENDPOINT_URL_DYNAMODB is not a URL such as http://127.0.0.1:8000")
	check(isURL(s.SQSEndpoint), "AWS_ENDPOINT_URL_SQS is not a URL such as http://127.0.0.1:9324")
	if s.DataDir != "" {
		err := os.MkdirAll(s.DataDir, 0o700)
		check(err == nil, "DATA_DIR cannot be used: %w", err)
	}
	return errors.Join(problems...)
}

// isURL accepts what is not set, too.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return s == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
