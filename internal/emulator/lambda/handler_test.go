package lambda_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"agentworker/internal/emulator/lambda"
)

// client is the AWS SDK's own, talking to a Handler of the function.
func client(t *testing.T, f *lambda.Function, config lambda.AsyncConfig) (*api.Client, *lambda.Async) {
	t.Helper()
	async := lambda.NewAsync(config)
	server := httptest.NewServer(lambda.NewHandler(async, f))
	transport := &http.Transport{}
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
		if err := async.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return api.New(api.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
		HTTPClient: &http.Client{Transport: transport}, RetryMaxAttempts: 1,
	}), async
}

func TestSDKInvokes(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{})
	c, _ := client(t, f, lambda.AsyncConfig{})
	for _, name := range []string{"worker", "worker:$LATEST", f.ARN(), f.ARN() + ":$LATEST", "000000000000:function:worker"} {
		out, err := c.Invoke(t.Context(), &api.InvokeInput{FunctionName: &name, Payload: []byte(`{"do":"echo"}`), LogType: types.LogTypeTail})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if string(out.Payload) != `{"do":"echo"}` || out.FunctionError != nil || out.StatusCode != 200 || aws.ToString(out.ExecutedVersion) != "$LATEST" {
			t.Errorf("%s: got %s, error %v, status %d, version %v", name, out.Payload, out.FunctionError, out.StatusCode, out.ExecutedVersion)
		}
		log, err := base64.StdEncoding.DecodeString(aws.ToString(out.LogResult))
		if err != nil || !strings.HasPrefix(string(log), "START RequestId: ") || !strings.Contains(string(log), "REPORT RequestId: ") {
			t.Errorf("%s: log %q, %v, want START to REPORT", name, log, err)
		}
	}
	out, err := c.Invoke(t.Context(), &api.InvokeInput{FunctionName: aws.String("worker"), Payload: []byte(`{"do":"error","text":"no"}`)})
	if err != nil || aws.ToString(out.FunctionError) != "Unhandled" || out.LogResult != nil {
		t.Errorf("error: got %+v, %v, want FunctionError Unhandled and no log", out, err)
	}
	out, err = c.Invoke(t.Context(), &api.InvokeInput{FunctionName: aws.String("worker"), InvocationType: types.InvocationTypeDryRun})
	if err != nil || out.StatusCode != 204 {
		t.Errorf("dry run: got %+v, %v, want 204", out, err)
	}
}

func TestSDKGetsTypedErrors(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{Concurrency: 1})
	c, _ := client(t, f, lambda.AsyncConfig{})
	mark := filepath.Join(t.TempDir(), "mark")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = f.Invoke(ctx, payload(t, event{"do": "sleep", "started": mark})) }()
	t.Cleanup(func() { // the busy function
		done, stop := context.WithCancel(context.Background())
		stop()
		_ = f.Close(done)
	})
	started(t, mark)
	defer cancel()

	var notFound *types.ResourceNotFoundException
	var throttled *types.TooManyRequestsException
	var tooLarge *types.RequestTooLargeException
	var content *types.InvalidRequestContentException
	var parameter *types.InvalidParameterValueException
	big := bytes.Repeat([]byte("1"), lambda.MaxPayload+1)
	for _, test := range []struct {
		name  string
		input api.InvokeInput
		want  any
	}{
		{"unknown function", api.InvokeInput{FunctionName: aws.String("nobody")}, &notFound},
		{"unknown version", api.InvokeInput{FunctionName: aws.String("worker"), Qualifier: aws.String("7")}, &notFound},
		{"throttled", api.InvokeInput{FunctionName: aws.String("worker")}, &throttled},
		{"too large", api.InvokeInput{FunctionName: aws.String("worker"), Payload: big}, &tooLarge},
		{"too large, async", api.InvokeInput{FunctionName: aws.String("worker"), Payload: big[:lambda.MaxAsyncPayload+1], InvocationType: types.InvocationTypeEvent}, &tooLarge},
		{"not JSON", api.InvokeInput{FunctionName: aws.String("worker"), Payload: []byte("hello")}, &content},
		{"unknown type", api.InvokeInput{FunctionName: aws.String("worker"), InvocationType: "Later"}, &parameter},
	} {
		_, err := c.Invoke(t.Context(), &test.input)
		if !errors.As(err, test.want) {
			t.Errorf("%s: got %v, want %T", test.name, err, test.want)
		}
	}
	if got := throttled; got != nil && got.Reason != types.ThrottleReasonReservedFunctionConcurrentInvocationLimitExceeded {
		t.Errorf("throttle reason: got %q", got.Reason)
	}
}

func TestAsyncRetriesTwiceUnderOneRequestID(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{})
	ended := make(chan lambda.AsyncResult, 1)
	c, _ := client(t, f, lambda.AsyncConfig{RetryDelay: time.Millisecond, Logger: slog.New(slog.DiscardHandler), Done: func(r lambda.AsyncResult) { ended <- r }})
	out, err := c.Invoke(t.Context(), &api.InvokeInput{
		FunctionName: aws.String("worker"), InvocationType: types.InvocationTypeEvent, Payload: []byte(`{"do":"error","text":"no"}`),
	})
	if err != nil || out.StatusCode != 202 || len(out.Payload) != 0 {
		t.Fatalf("got %+v, %v, want 202 without a payload", out, err)
	}
	result := <-ended
	if result.Attempts != 3 || result.Result.FunctionError != "Unhandled" || result.Err != nil {
		t.Errorf("got %+v, want 3 attempts, the last failed", result)
	}
	if got := strings.Count(lines.text(), "START RequestId: "+result.RequestID); got != 3 {
		t.Errorf("runs under the request id: got %d, want 3\n%s", got, lines.text())
	}
}

func TestAsyncThrottleCostsNoAttempt(t *testing.T) {
	t.Parallel()
	f, _ := start(t, lambda.Config{Concurrency: 1})
	ended, old := make(chan lambda.AsyncResult, 1), make(chan lambda.AsyncResult, 1)
	async := lambda.NewAsync(lambda.AsyncConfig{ThrottleDelay: time.Millisecond, Done: func(r lambda.AsyncResult) { ended <- r }})
	impatient := lambda.NewAsync(lambda.AsyncConfig{MaxAge: 1, Logger: slog.New(slog.DiscardHandler), Done: func(r lambda.AsyncResult) { old <- r }})
	dir := t.TempDir()
	hold, mark := filepath.Join(dir, "hold"), filepath.Join(dir, "mark")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := f.Invoke(t.Context(), payload(t, event{"do": "wait", "text": hold, "started": mark}))
		done <- err
	}()
	started(t, mark)
	for _, a := range []*lambda.Async{async, impatient} {
		if _, err := a.Send(f, nil); err != nil {
			t.Fatal(err)
		}
	}
	if result := <-old; result.Attempts != 0 || !errors.Is(result.Err, lambda.ErrThrottled) {
		t.Errorf("an event that grew too old: got %+v, want it throttled without an attempt", result)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	if result := <-ended; result.Attempts != 1 || result.Err != nil {
		t.Errorf("got %+v, want one attempt", result)
	}
	if err := <-done; err != nil {
		t.Errorf("the invocation that throttled failed: %v", err)
	}
	if err := async.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := async.Send(f, nil); !errors.Is(err, lambda.ErrClosed) {
		t.Errorf("Send after Close: got %v, want ErrClosed", err)
	}
}

func TestAsyncCloseGivesUpWaitingRetries(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{})
	ended := make(chan lambda.AsyncResult, 1)
	async := lambda.NewAsync(lambda.AsyncConfig{RetryDelay: time.Hour, Logger: slog.New(slog.DiscardHandler), Done: func(r lambda.AsyncResult) { ended <- r }})
	if _, err := async.Send(f, []byte(`{"do":"error","text":"no"}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first attempt has ended", func() bool { return strings.Contains(lines.text(), "REPORT") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := async.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: got %v, want Canceled", err)
	}
	if result := <-ended; result.Attempts != 1 {
		t.Errorf("attempts: got %d, want 1", result.Attempts)
	}
}
