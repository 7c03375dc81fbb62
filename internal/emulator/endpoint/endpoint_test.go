package endpoint_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"

	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/emulator/endpoint"
	"agentworker/internal/emulator/sns"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

var static = credentials.NewStaticCredentialsProvider("local", "local", "")

// says is a service that answers with its name.
func says(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

func newEndpoint(t *testing.T, config endpoint.Config) *endpoint.Endpoint {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	e := endpoint.New(config)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func serve(t *testing.T, config endpoint.Config) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(newEndpoint(t, config))
	t.Cleanup(server.Close)
	return server
}

func parse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestRequestsFindTheirService(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(says("dynamodb"))
	t.Cleanup(backend.Close)
	full := newEndpoint(t, endpoint.Config{
		SQS: says("sqs"), Lambda: says("lambda"), SNS: says("sns"), Notifications: says("notifications"),
		DynamoDB: parse(t, backend.URL),
	})
	empty := newEndpoint(t, endpoint.Config{})
	const form = "application/x-www-form-urlencoded; charset=utf-8"
	for _, c := range []struct {
		method, path, target, contentType, want string
	}{
		{"POST", "/", "AmazonSQS.SendMessage", "application/x-amz-json-1.0", "sqs"},
		{"POST", "/000000000000/tasks", "AmazonSQS.SendMessage", "application/x-amz-json-1.0", "sqs"},
		{"POST", "/", "DynamoDB_20120810.GetItem", "application/x-amz-json-1.0", "dynamodb"},
		{"POST", "/", "DynamoDBStreams_20120810.ListStreams", "application/x-amz-json-1.0", "dynamodb"},
		{"POST", "/2015-03-31/functions/worker/invocations", "", "application/json", "lambda"},
		{"POST", "/", "", form, "sns"},
		{"POST", "/?Version=2010-05-15", "", form, "sns"}, // what counts is the form
		{"GET", "/_local/notifications", "", "", "notifications"},
		{"POST", "/", "Kinesis_20131202.PutRecord", "application/x-amz-json-1.1", ""},
		{"POST", "/", "AmazonSQSx.SendMessage", form, ""},
		{"DELETE", "/_local/notifications", "", "", ""},
		{"GET", "/", "", "", ""},
		{"GET", "/_local/", "", "", ""},
		{"POST", "/", "", "application/json", ""},
	} {
		send := func(e http.Handler) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1:4566"+c.path, nil)
			r.Header.Set("X-Amz-Target", c.target)
			r.Header.Set("Content-Type", c.contentType)
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			return w
		}
		w := send(full)
		if c.want != "" && (w.Code != 200 || w.Body.String() != c.want) {
			t.Errorf("%s %s %s: got %d %s, want %s", c.method, c.path, c.target, w.Code, w.Body, c.want)
		}
		if got := w.Body.String(); c.want == "" && (w.Code != 404 || !strings.Contains(got, "Served are: SQS")) {
			t.Errorf("%s %s %s: got %d %s, want 404 that says what is served", c.method, c.path, c.target, w.Code, got)
		}
		if w := send(empty); w.Code != 404 || !strings.HasSuffix(w.Body.String(), `Served are: GET /_local/health."}`) {
			t.Errorf("%s %s %s without services: got %d %s, want 404", c.method, c.path, c.target, w.Code, w.Body)
		}
	}
}

func TestFormsFindTheirServiceByTheirVersion(t *testing.T) {
	t.Parallel()
	echo := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, name+" "+strconv.Itoa(len(body)))
		})
	}
	both := newEndpoint(t, endpoint.Config{SNS: echo("sns"), CloudFormation: echo("cloudformation")})
	one := newEndpoint(t, endpoint.Config{SNS: echo("sns")})
	large := "Message=" + strings.Repeat("x", 5<<20)
	for _, c := range []struct {
		endpoint *endpoint.Endpoint
		body     string
		status   int
		want     string
	}{
		{both, "Action=DescribeStacks&Version=2010-05-15", 200, "cloudformation 40"},
		{both, "Action=Publish&Version=2010-03-31", 200, "sns 33"},
		{both, "Action=Publish", 200, "sns 14"},
		{both, "%zz", 200, "sns 3"},
		{both, large, 200, "sns 4194305"}, // more than it takes, which it says itself
		{one, "Action=DescribeStacks&Version=2010-05-15", 404, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:4566/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		w := httptest.NewRecorder()
		c.endpoint.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != c.status || c.want != "" && got != c.want {
			t.Errorf("%.40s: got %d %s, want %d %s", c.body, w.Code, got, c.status, c.want)
		}
	}
}

// An SDK of before November 2023 sends SQS forms.
func TestFormsOfOtherServicesAreToldWhatIsServed(t *testing.T) {
	t.Parallel()
	topics, err := sns.New(sns.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, endpoint.Config{SQS: says("sqs"), SNS: topics})
	for form, want := range map[string]string{
		"Action=ListQueues&Version=2012-11-05":        "ListQueues for version 2012-11-05: served here are SQS (X-Amz-Target: AmazonSQS.…",
		"Action=GetCallerIdentity&Version=2011-06-15": "GetCallerIdentity for version 2011-06-15: served here are SQS (",
		"Action=Subscribe&Version=2010-03-31":         "Subscribe for version 2010-03-31: served here are Publish, ",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:4566/", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != 400 || !strings.Contains(got, "<Code>InvalidAction</Code>") || !strings.Contains(got, want) {
			t.Errorf("%s: got %d %s, want 400 InvalidAction and %q", form, w.Code, got, want)
		}
	}
}

func TestWebPagesAndForeignNamesAreRefused(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, endpoint.Config{SQS: says("sqs"), Notifications: says("notifications")})
	for _, c := range []struct {
		host, origin, site string
		allowed            bool
	}{
		{"127.0.0.1:4566", "", "", true},
		{"127.8.8.8", "", "", true},
		{"localhost:4566", "", "", true},
		{"LocalHost.:4566", "", "", true},
		{"sqs.us-east-1.localhost:4566", "", "", true},
		{"[::1]:4566", "", "", true},
		{"[::1]", "", "", true},
		{"127.0.0.1:4566", "http://127.0.0.1:4566", "same-origin", true},
		{"127.0.0.1:4566", "", "none", true},
		{"evil.example:4566", "", "", false},
		{"127.0.0.1.evil.example", "", "", false},
		{"localhost.evil.example", "", "", false},
		{"169.254.169.254", "", "", false},
		{"0.0.0.0:4566", "", "", false},
		{"10.0.0.1:4566", "", "", false},
		{"", "", "", false},
		{"127.0.0.1:4566", "https://evil.example", "", false},
		{"127.0.0.1:4566", "null", "", false},
		{"127.0.0.1:4566", "http://127.0.0.1:8080", "", false},
		{"127.0.0.1:4566", "http://localhost:4566", "", false},
		{"127.0.0.1:4566", "", "cross-site", false},
		{"127.0.0.1:4566", "", "same-site", false},
		{"127.0.0.1:4566", "https://evil.example", "same-origin", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:4566/", nil)
		r.Host = c.host
		r.Header.Set("X-Amz-Target", "AmazonSQS.PurgeQueue")
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		want := map[bool]int{true: 200, false: 403}[c.allowed]
		if w.Code != want {
			t.Errorf("host %q, origin %q, site %q: got %d %s, want %d", c.host, c.origin, c.site, w.Code, w.Body, want)
		}
		if w.Code == 403 && !strings.Contains(w.Body.String(), "AccessDeniedException") {
			t.Errorf("host %q, origin %q: got %s, want an AccessDeniedException", c.host, c.origin, w.Body)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost:4566"+endpoint.NotificationsPath, nil)
	r.Header.Set("Origin", "https://evil.example")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("GET from another origin: got %d %s, want 403", w.Code, w.Body)
	}
}

func dynamodbClient(server *httptest.Server, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: server.Client(), Credentials: static,
	}, options...)
}

func TestDynamoDBClientsWorkThroughTheEndpoint(t *testing.T) {
	t.Parallel()
	server := serve(t, endpoint.Config{DynamoDB: parse(t, dynamodbtest.Endpoint(t))})
	client := dynamodbClient(server)
	table := dynamodbtest.Table(t, client)
	big := strings.Repeat("0123456789 你好 ", 15_000) // about 270 KB, checksummed by the SDK
	key := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "a"}, "sk": &types.AttributeValueMemberS{Value: "b"},
	}
	item := map[string]types.AttributeValue{"pk": key["pk"], "sk": key["sk"], "data": &types.AttributeValueMemberS{Value: big}}
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
		t.Fatalf("put: %v", err)
	}
	got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if data, ok := got.Item["data"].(*types.AttributeValueMemberS); !ok || data.Value != big {
		t.Errorf("the item did not come back as it was: got %.60v", got.Item["data"])
	}
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: &table, Item: key, ConditionExpression: aws.String("attribute_not_exists(pk)"),
	})
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) {
		t.Errorf("conditional put: got %v, want a ConditionalCheckFailedException", err)
	}
	streams := dynamodbstreams.New(dynamodbstreams.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: server.Client(), Credentials: static,
	})
	if _, err := streams.ListStreams(t.Context(), &dynamodbstreams.ListStreamsInput{TableName: &table}); err != nil {
		t.Errorf("list streams: %v", err)
	}
}

func TestDynamoDBSeesNoEncodingThatTheClientDidNotAskFor(t *testing.T) {
	t.Parallel()
	asked := make(chan []string, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Values("Accept-Encoding")
	}))
	t.Cleanup(backend.Close)
	e := newEndpoint(t, endpoint.Config{DynamoDB: parse(t, backend.URL)})
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:4566/", nil)
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	e.ServeHTTP(httptest.NewRecorder(), r)
	if got := <-asked; len(got) > 0 {
		t.Errorf("Accept-Encoding: got %q, want none", got)
	}
}

func TestDynamoDBThatIsDownIsAnErrorThatTheSDKRetries(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := "http://" + listener.Addr().String()
	_ = listener.Close()
	var attempts atomic.Int32
	e := newEndpoint(t, endpoint.Config{DynamoDB: parse(t, down)})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts.Add(1)
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client := dynamodbClient(server, func(o *dynamodb.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = 3
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		})
	})
	_, err = client.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	var internal *types.InternalServerError
	if !errors.As(err, &internal) {
		t.Errorf("got %v, want an InternalServerError", err)
	}
	if got := attempts.Load(); got != 3 {
		t.Errorf("the SDK tried %d times, want 3", got)
	}
	resp, body := get(t, server, endpoint.HealthPath)
	if want := `{"status":"unavailable","dynamodb":"does not answer"}`; resp.StatusCode != 503 || body != want {
		t.Errorf("health: got %d %s, want 503 %s", resp.StatusCode, body, want)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(backend.Close)
	for want, config := range map[string]endpoint.Config{
		`{"status":"ok"}`:                 {},
		`{"status":"ok","dynamodb":"ok"}`: {DynamoDB: parse(t, backend.URL)},
	} {
		resp, body := get(t, serve(t, config), endpoint.HealthPath)
		if resp.StatusCode != 200 || body != want {
			t.Errorf("got %d %s, want 200 %s", resp.StatusCode, body, want)
		}
	}
}

func TestSNSAndLambdaClientsWorkThroughTheEndpoint(t *testing.T) {
	t.Parallel()
	topics, err := sns.New(sns.Config{Topics: []string{"alerts"}})
	if err != nil {
		t.Fatal(err)
	}
	invoked := make(chan string, 1)
	server := serve(t, endpoint.Config{
		SNS: topics, Notifications: topics.NotificationsHandler(),
		Lambda: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			invoked <- r.URL.Path + " " + string(body)
			_, _ = io.WriteString(w, `{"ok":true}`)
		}),
	})
	publisher := awssns.New(awssns.Options{Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: server.Client(), Credentials: static})
	if _, err := publisher.Publish(t.Context(), &awssns.PublishInput{
		TopicArn: aws.String(topics.TopicARN("alerts")), Message: aws.String("two messages in tasks-dlq"),
	}); err != nil {
		t.Errorf("publish: %v", err)
	}
	if resp, body := get(t, server, endpoint.NotificationsPath); resp.StatusCode != 200 || !strings.Contains(body, "two messages in tasks-dlq") {
		t.Errorf("notifications: got %d %s, want what was published", resp.StatusCode, body)
	}
	functions := lambda.New(lambda.Options{Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: server.Client(), Credentials: static})
	out, err := functions.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String("worker"), Payload: []byte(`{"a":1}`)})
	if err != nil || !bytes.Equal(out.Payload, []byte(`{"ok":true}`)) {
		t.Fatalf("invoke: got %v, %v", out, err)
	}
	if got, want := <-invoked, `/2015-03-31/functions/worker/invocations {"a":1}`; got != want {
		t.Errorf("invoked: got %s, want %s", got, want)
	}
}

func get(t *testing.T, server *httptest.Server, path string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}
