// Package dynamodbtest gives tests a DynamoDB: one in-memory server for a test binary, started by the first test that
// asks for it, and a table of its own for each test. A test binary that uses it hands its TestMain to Main.
//
// With AWS_ENDPOINT_URL_DYNAMODB set nothing is installed or started, and the tests run against what it names.
package dynamodbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	emulator "agentworker/internal/emulator/dynamodb"
)

const endpointVariable = "AWS_ENDPOINT_URL_DYNAMODB"

// shared is the binary's one server. It has to outlive the tests, so it cannot hang on any one of them.
var shared struct {
	mu        sync.Mutex
	server    *emulator.Server
	err       error
	transport *http.Transport
}

// Main runs a test binary's tests, stops the server whatever became of them, fails the run if goroutines are left over,
// and exits. It is a whole TestMain: func TestMain(m *testing.M) { dynamodbtest.Main(m) }.
func Main(m *testing.M, leaks ...goleak.Option) { goleak.VerifyTestMain(binary{m}, leaks...) }

type binary struct{ m *testing.M }

func (b binary) Run() int {
	code := b.m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "dynamodbtest:", err)
		code = max(code, 1)
	}
	return code
}

// New is a client for the shared server, which it starts when it is the first to ask. Region is us-east-1, credentials
// are made up. It fails the test when there is no server to be had.
func New(t testing.TB) *dynamodb.Client {
	t.Helper()
	endpoint := Endpoint(t)
	return dynamodb.New(dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   &http.Client{Transport: transport()},
	})
}

// Endpoint is the URL of the shared server, which it starts when it is the first to ask.
func Endpoint(t testing.TB) string {
	t.Helper()
	if endpoint := os.Getenv(endpointVariable); endpoint != "" {
		return endpoint
	}
	server, err := start()
	if err != nil {
		t.Fatalf("dynamodbtest: %v", err)
	}
	return server.Endpoint()
}

// Table makes a table with the string keys pk (hash) and sk (range), on demand, and deletes it after the test.
func Table(t testing.TB, client *dynamodb.Client) string {
	t.Helper()
	name := "test-" + uuid.NewString()
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:   &name,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
	})
	if err != nil {
		t.Fatalf("dynamodbtest: create table %s: %v", name, err)
	}
	t.Cleanup(func() {
		// t.Context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
			t.Errorf("dynamodbtest: delete table %s: %v", name, err)
		}
	})
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 20*time.Millisecond, time.Second
	})
	if err := waiter.Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &name}, time.Minute); err != nil {
		t.Fatalf("dynamodbtest: table %s does not become active: %v", name, err)
	}
	return name
}

// start is called by the first test that needs the server; a failure is remembered, so that every test tells it at once.
func start() (*emulator.Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil || shared.err != nil {
		return shared.server, shared.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	shared.server, shared.err = func() (*emulator.Server, error) {
		root, err := moduleRoot()
		if err != nil {
			return nil, err
		}
		path, err := emulator.Install(ctx, filepath.Join(root, ".tools"))
		if err != nil {
			return nil, err
		}
		return emulator.Start(ctx, emulator.Options{Binary: path, Logger: slog.New(slog.DiscardHandler)})
	}()
	return shared.server, shared.err
}

func stop() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.transport != nil {
		shared.transport.CloseIdleConnections()
	}
	if shared.server == nil {
		return nil
	}
	return shared.server.Close()
}

// transport is shared by all clients so that stop can close its connections.
func transport() *http.Transport {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.transport == nil {
		shared.transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	}
	return shared.transport
}

// moduleRoot is the folder above the test's own that holds go.mod: go test runs a binary in its package's folder.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s to tell where .tools lies", start)
		}
	}
}
