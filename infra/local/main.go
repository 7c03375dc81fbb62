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
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"agentworker/internal/emulator"
	"agentworker/internal/topology"
)

// settings are what make run reads from the environment.
type settings struct {
	Port    int    `env:"PORT" envDefault:"8080"`
	AWSPort int    `env:"AWS_PORT" envDefault:"4566"`
	DataDir string `env:"DATA_DIR"`
	Workers int    `env:"WORKERS" envDefault:"2"`

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
	s, err := read()
	if err != nil {
		return err
	}
	// The first signal stops the chain in good order, the second at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	console := newConsole(os.Stdout)
	account := &account{}
	chain, err := emulator.Start(ctx, emulator.Config{
		Stack: topology.Default(),
		Port:  s.Port, AWSPort: s.AWSPort, DataDir: s.DataDir, Workers: s.Workers,
		BinDir: filepath.Join("build", "local"), ToolsDir: ".tools",
		DynamoDBEndpoint: s.DynamoDBEndpoint, SQSEndpoint: s.SQSEndpoint,
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

// read refuses what cannot work, with every problem in one message.
func read() (settings, error) {
	s, err := env.ParseAs[settings]()
	var problems []error
	var list env.AggregateError
	if errors.As(err, &list) {
		for _, problem := range list.Errors {
			var parse env.ParseError
			if errors.As(problem, &parse) {
				problem = fmt.Errorf("%s must be a whole number", map[string]string{"Port": "PORT", "AWSPort": "AWS_PORT", "Workers": "WORKERS"}[parse.Name])
			}
			problems = append(problems, problem)
		}
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(s.Port >= 0 && s.Port <= 65535, "PORT is %d; set 1 to 65535, or 0 for any free one", s.Port)
	check(s.AWSPort >= 0 && s.AWSPort <= 65535, "AWS_PORT is %d; set 1 to 65535, or 0 for any free one", s.AWSPort)
	check(s.Port != s.AWSPort || s.Port == 0, "PORT and AWS_PORT are both %d; set two different ones", s.Port)
	check(s.Workers >= 1 && s.Workers <= 100 || err != nil, "WORKERS is %d; set 1 to 100", s.Workers)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": s.DynamoDBEndpoint, "AWS_ENDPOINT_URL_SQS": s.SQSEndpoint} {
		u, err := url.Parse(value)
		check(value == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "%s is not a URL such as http://127.0.0.1:8000", name)
	}
	if s.DataDir != "" {
		if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
			problems = append(problems, fmt.Errorf("DATA_DIR cannot be used: %w", err))
		}
	}
	if len(problems) > 0 {
		return s, fmt.Errorf("the settings cannot be used:\n%w", errors.Join(problems...))
	}
	return s, nil
}
