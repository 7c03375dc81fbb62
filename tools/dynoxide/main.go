// Command dynoxide installs the DynamoDB emulator of the local chain and of the tests into the folder given to it, so
// that the first test does not have to wait for a download. It does nothing when the emulator is there already, or when
// AWS_ENDPOINT_URL_DYNAMODB names another DynamoDB.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"agentworker/internal/emulator/dynamodb"
)

func main() {
	if err := run(os.Args[1:], os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, endpoint string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: dynoxide FOLDER")
	}
	if endpoint != "" {
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	_, err := dynamodb.Install(ctx, args[0])
	return err
}
