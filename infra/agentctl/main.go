// Command agentctl is the operator's command line: for the deployed stack and for the chain on this machine alike.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"agentworker/infra/agentctl/command"
)

func main() {
	// The first signal lets a command finish or give back what it is at, the second ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := command.Main(ctx, os.Args[1:], command.Standard())
	stop()
	os.Exit(code)
}
