package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/jonboulle/clockwork"

	"agentworker/internal/awsclient"
	"agentworker/internal/emulator/sqs"
)

// world is a server on a clock that the test sets, and a client of it.
type world struct {
	*testing.T
	clock  *clockwork.FakeClock
	server *sqs.Server
	client *awssqs.Client
	// answered gets a value whenever the server has finished a request.
	answered chan string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return openWorld(t, sqs.Options{Clock: clockwork.NewFakeClockAt(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))})
}

func openWorld(t *testing.T, opts sqs.Options) *world {
	t.Helper()
	server, err := sqs.Open(opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	w := &world{T: t, server: server, answered: make(chan string, 4096)}
	w.clock, _ = opts.Clock.(*clockwork.FakeClock)
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(rw, r)
		select {
		case w.answered <- r.Header.Get("X-Amz-Target"):
		default:
		}
	}))
	w.client = newClient(t, web.URL)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		web.Close()
	})
	return w
}

func newClient(t *testing.T, url string) *awssqs.Client {
	t.Helper()
	calls := awsclient.HTTPClient(0)
	t.Cleanup(calls.CloseIdleConnections)
	return awssqs.New(awssqs.Options{
		BaseEndpoint: aws.String(url), Region: "us-east-1", RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		HTTPClient:  calls,
	})
}

// must fails the test on an error.
func must[T any](t testing.TB, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func (w *world) queue(name string, attributes ...string) string {
	w.Helper()
	out, err := w.client.CreateQueue(w.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	return *must(w, out, err).QueueUrl
}

func (w *world) fifo(name string, attributes ...string) string {
	w.Helper()
	return w.queue(name, append([]string{"FifoQueue", "true"}, attributes...)...)
}

func pairs(list []string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

func arn(name string) string { return "arn:aws:sqs:us-east-1:000000000000:" + name }

func redrive(dlq string, most int) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn(dlq), most)
}

func (w *world) send(url, body string, change ...func(*awssqs.SendMessageInput)) *awssqs.SendMessageOutput {
	w.Helper()
	in := &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}
	for _, c := range change {
		c(in)
	}
	out, err := w.client.SendMessage(w.Context(), in)
	return must(w, out, err)
}

func inGroup(group string) func(*awssqs.SendMessageInput) {
	return func(in *awssqs.SendMessageInput) { in.MessageGroupId = &group }
}

func deduplicated(id string) func(*awssqs.SendMessageInput) {
	return func(in *awssqs.SendMessageInput) { in.MessageDeduplicationId = &id }
}

func delayed(seconds int32) func(*awssqs.SendMessageInput) {
	return func(in *awssqs.SendMessageInput) { in.DelaySeconds = seconds }
}

type receiving func(*awssqs.ReceiveMessageInput)

func visibility(seconds int32) receiving {
	return func(in *awssqs.ReceiveMessageInput) { in.VisibilityTimeout = seconds }
}

func waiting(seconds int32) receiving {
	return func(in *awssqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

func (w *world) receiveFrom(ctx context.Context, url string, most int32, change ...receiving) ([]types.Message, error) {
	in := &awssqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: most,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		MessageAttributeNames:       []string{"All"},
	}
	for _, c := range change {
		c(in)
	}
	out, err := w.client.ReceiveMessage(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

func (w *world) receive(url string, most int32, change ...receiving) []types.Message {
	w.Helper()
	got, err := w.receiveFrom(w.Context(), url, most, change...)
	return must(w, got, err)
}

// one receives exactly one message.
func (w *world) one(url string, change ...receiving) types.Message {
	w.Helper()
	got := w.receive(url, 1, change...)
	if len(got) != 1 {
		w.Fatalf("received %d messages, want 1", len(got))
	}
	return got[0]
}

// returned receives messages and puts them back at once. (The SDK cannot say VisibilityTimeout 0.)
func (w *world) returned(url string, most int32, change ...receiving) []types.Message {
	w.Helper()
	got := w.receive(url, most, change...)
	for _, m := range got {
		must(w, 0, w.hide(url, m, 0))
	}
	return got
}

func (w *world) wantBodies(got []types.Message, want ...string) {
	w.Helper()
	if bodies := bodiesOf(got); !slices.Equal(bodies, want) {
		w.Fatalf("received %q, want %q", bodies, want)
	}
}

func bodiesOf(got []types.Message) []string {
	bodies := []string{}
	for _, m := range got {
		bodies = append(bodies, *m.Body)
	}
	return bodies
}

func (w *world) delete(url string, m types.Message) error {
	_, err := w.client.DeleteMessage(w.Context(), &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (w *world) hide(url string, m types.Message, seconds int32) error {
	_, err := w.client.ChangeMessageVisibility(w.Context(), &awssqs.ChangeMessageVisibilityInput{
		QueueUrl: &url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func (w *world) attributes(url string) map[string]string {
	w.Helper()
	out, err := w.client.GetQueueAttributes(w.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	return must(w, out, err).Attributes
}

func (w *world) set(url string, attributes ...string) error {
	_, err := w.client.SetQueueAttributes(w.Context(), &awssqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: pairs(attributes)})
	return err
}

// wantDepth compares the three counts, by attribute and by method.
func (w *world) wantDepth(url, name string, visible, notVisible, delayed int) {
	w.Helper()
	got := w.attributes(url)
	for attribute, want := range map[string]int{
		"ApproximateNumberOfMessages":           visible,
		"ApproximateNumberOfMessagesNotVisible": notVisible,
		"ApproximateNumberOfMessagesDelayed":    delayed,
	} {
		if got[attribute] != strconv.Itoa(want) {
			w.Errorf("%s of %s = %s, want %d", attribute, name, got[attribute], want)
		}
	}
	if v, n, d, ok := w.server.Depth(name); !ok || v != visible || n != notVisible || d != delayed {
		w.Errorf("Depth(%s) = %d, %d, %d, %v, want %d, %d, %d, true", name, v, n, d, ok, visible, notVisible, delayed)
	}
}

// wantCode compares the error code as an SDK shows it.
func wantCode(t testing.TB, err error, want string) {
	t.Helper()
	var api smithy.APIError
	switch {
	case !errors.As(err, &api):
		t.Errorf("error = %v, want one with code %s", err, want)
	case api.ErrorCode() != want:
		t.Errorf("error code = %s (%s), want %s", api.ErrorCode(), api.ErrorMessage(), want)
	}
}

// wantError checks for a typed error of the SDK.
func wantError[T error](t testing.TB, err error) {
	t.Helper()
	var want T
	if !errors.As(err, &want) {
		t.Errorf("error = %v, want a %T", err, want)
	}
}

func system(m types.Message, name types.MessageSystemAttributeName) string {
	return m.Attributes[string(name)]
}

// poll is a receive that runs in the background.
type poll struct {
	messages []types.Message
	err      error
}

// startPoll returns when the server is waiting for messages on behalf of the poll.
func (w *world) startPoll(ctx context.Context, url string, seconds int32, already int) <-chan poll {
	w.Helper()
	done := make(chan poll, 1)
	go func() {
		messages, err := w.receiveFrom(ctx, url, 10, waiting(seconds))
		done <- poll{messages, err}
	}()
	limit, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if err := w.clock.BlockUntilContext(limit, already+1); err != nil {
		w.Fatalf("the long poll does not wait: %v", err)
	}
	return done
}

func (w *world) await(done <-chan poll) []types.Message {
	w.Helper()
	select {
	case p := <-done:
		return must(w, p.messages, p.err)
	case <-time.After(time.Minute):
		w.Fatal("the long poll was not answered")
		return nil
	}
}
