package sqs_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"agentworker/internal/emulator/sqs"
)

// childDir makes the test binary a server of its own over that folder, one that can be killed.
const childDir = "SQS_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(childDir); ok {
		fmt.Fprintln(os.Stderr, serveChild(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// serveChild prints its address and serves until it is killed.
func serveChild(dir string) error {
	server, err := sqs.Open(sqs.Options{Dir: dir})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, "http://"+listener.Addr().String()); err != nil {
		return err
	}
	return http.Serve(listener, server)
}
