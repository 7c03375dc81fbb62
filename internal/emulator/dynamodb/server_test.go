package dynamodb_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"agentworker/internal/emulator/dynamodb"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
)

var quiet = slog.New(slog.DiscardHandler)

func TestSharedServerTakesWritesAndTransactions(t *testing.T) {
	t.Parallel()
	client := dynamodbtest.New(t)
	table := dynamodbtest.Table(t, client)
	item := func(sk string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "thread#1"},
			"sk": &types.AttributeValueMemberS{Value: sk},
		}
	}
	put := func(sk string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &table, Item: item(sk), ConditionExpression: aws.String("attribute_not_exists(pk)"),
		}}
	}
	write := func(sks ...string) error {
		var items []types.TransactWriteItem
		for _, sk := range sks {
			items = append(items, put(sk))
		}
		_, err := client.TransactWriteItems(t.Context(), &awsdynamodb.TransactWriteItemsInput{TransactItems: items})
		return err
	}
	if err := write("a", "b"); err != nil {
		t.Fatalf("first transaction: %v", err)
	}
	var cancelled *types.TransactionCanceledException
	if err := write("c", "b"); !errors.As(err, &cancelled) {
		t.Fatalf("second transaction: got %v, want a TransactionCanceledException", err)
	}
	got, err := client.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: &table, Key: item("c")})
	if err != nil || got.Item != nil {
		t.Errorf("item of the cancelled transaction: got %v, %v, want none", got.Item, err)
	}
}

func TestEndpointFromTheEnvironmentIsUsedAsItIs(t *testing.T) {
	const own = "http://127.0.0.1:1"
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", own)
	if got := dynamodbtest.Endpoint(t); got != own {
		t.Errorf("endpoint: got %q, want %q", got, own)
	}
}

func TestDataOnDiskSurvivesAKillAtTheSameEndpoint(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table.db")
	server := startServer(t, dynamodb.Options{DBPath: path})
	client := clientOf(t, server.Endpoint())
	table := dynamodbtest.Table(t, client)

	pid := pidOn(t, server.Endpoint())
	kill(t, pid)
	await(t, "dynoxide to be back", func() bool {
		next, ok := findPid(server.Endpoint())
		return ok && next != pid
	})
	await(t, "the table to be back", func() bool {
		_, err := client.DescribeTable(t.Context(), &awsdynamodb.DescribeTableInput{TableName: &table})
		return err == nil
	})
	select {
	case <-server.Done():
		t.Errorf("server is done after a restart: %v", server.Err())
	default:
	}
}

func TestDeathInMemoryIsReported(t *testing.T) {
	t.Parallel()
	server := startServer(t, dynamodb.Options{})
	if err := server.Err(); err != nil {
		t.Errorf("error while running: got %v, want none", err)
	}
	kill(t, pidOn(t, server.Endpoint()))
	select {
	case <-server.Done():
	case <-time.After(time.Minute):
		t.Fatal("server is not done a minute after its process was killed")
	}
	if err := server.Err(); !errors.Is(err, dynamodb.ErrExited) {
		t.Errorf("got %v, want ErrExited", err)
	}
}

func TestCloseEndsTheProcess(t *testing.T) {
	t.Parallel()
	server := startServer(t, dynamodb.Options{})
	pid := pidOn(t, server.Endpoint())
	for range 2 {
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after Close: got %v, want no such process", pid, err)
	}
}

func TestStartThatCannotSucceedSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := dynamodb.Start(t.Context(), dynamodb.Options{Binary: filepath.Join(t.TempDir(), "absent"), Logger: quiet})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent binary: got %v, want it to say that the file does not exist", err)
	}
	dir := t.TempDir()
	_, err = dynamodb.Start(t.Context(), dynamodb.Options{Binary: binary(t), DBPath: filepath.Join(dir, "no", "such", "folder", "x.db"), Logger: quiet})
	if !errors.Is(err, dynamodb.ErrExited) || !strings.Contains(err.Error(), "database") {
		t.Errorf("impossible database path: got %v, want ErrExited with dynoxide's words", err)
	}
}

func TestStartTriesAnotherPortWhenTheFirstIsTaken(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "tried")
	script := writeScript(t, filepath.Join(t.TempDir(), "dynoxide"), `
[ -e `+marker+` ] && exec `+binary(t)+` "$@"
touch `+marker+`
echo "error: port $4 is already in use" >&2
exit 1
`)
	server, err := dynamodb.Start(t.Context(), dynamodb.Options{Binary: script, Logger: quiet})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestStartThatHangsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	script := writeScript(t, filepath.Join(t.TempDir(), "dynoxide"), "echo $$ > "+pidFile+".new; mv "+pidFile+".new "+pidFile+"; exec sleep 600\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := dynamodb.Start(ctx, dynamodb.Options{Binary: script, Logger: quiet})
		result <- err
	}()
	var pid int
	await(t, "the process to start", func() bool {
		text, err := os.ReadFile(pidFile)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after the start was given up: got %v, want no such process", pid, err)
	}
}

func TestRestartsThatDoNotHelpComeToAnEnd(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, dynamodb.Options{DBPath: filepath.Join(dir, "table.db")})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	kill(t, pidOn(t, server.Endpoint()))
	select {
	case <-server.Done():
	case <-time.After(time.Minute):
		t.Fatal("server is not done a minute after its folder went")
	}
	if err := server.Err(); !errors.Is(err, dynamodb.ErrExited) {
		t.Errorf("got %v, want ErrExited", err)
	}
}

func TestManyStartsAtOnceGetServersOfTheirOwn(t *testing.T) {
	t.Parallel()
	const n = 4
	path := binary(t)
	endpoints := make(chan string, n)
	for range n {
		go func() {
			server, err := dynamodb.Start(t.Context(), dynamodb.Options{Binary: path, Logger: quiet})
			if err != nil {
				t.Errorf("start: %v", err)
				endpoints <- ""
				return
			}
			t.Cleanup(func() { _ = server.Close() })
			endpoints <- server.Endpoint()
		}()
	}
	seen := map[string]bool{}
	for range n {
		seen[<-endpoints] = true
	}
	if len(seen) != n {
		t.Errorf("got endpoints %v, want %d different ones", seen, n)
	}
}

// TestHelperParent is a process of its own, for another test to kill.
func TestHelperParent(t *testing.T) {
	if os.Getenv("DYNAMODB_TEST_PARENT") == "" {
		t.Skip("runs as the child of TestKilledParentTakesTheServerAlong")
	}
	server, err := dynamodb.Start(t.Context(), dynamodb.Options{Binary: binary(t), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("pid=" + strconv.Itoa(pidOn(t, server.Endpoint())))
	<-server.Done()
}

func startServer(t *testing.T, opts dynamodb.Options) *dynamodb.Server {
	t.Helper()
	opts.Binary, opts.Logger = binary(t), quiet
	server, err := dynamodb.Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := dynamodb.Install(context.Background(), toolsDir(t))
	if err != nil {
		t.Fatalf("install: %v", err)
	}
	return path
}

func toolsDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), ".tools")
}

func clientOf(t *testing.T, endpoint string) *awsdynamodb.Client {
	t.Helper()
	return awsdynamodb.New(awsdynamodb.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:  newHTTPClient(t),
	})
}
