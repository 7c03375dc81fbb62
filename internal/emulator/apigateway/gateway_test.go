package apigateway_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentworker/internal/emulator/apigateway"
	"agentworker/internal/emulator/lambda"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// function records what it is invoked with and answers with what it is told to.
type function struct {
	events chan []byte
	answer func(ctx context.Context) (lambda.Result, error)
}

func returns(payload string) *function {
	return &function{events: make(chan []byte, 1), answer: func(context.Context) (lambda.Result, error) {
		return lambda.Result{Payload: []byte(payload)}, nil
	}}
}

func (f *function) Invoke(ctx context.Context, payload []byte) (lambda.Result, error) {
	f.events <- slices.Clone(payload)
	return f.answer(ctx)
}

// event is the one that the last request caused.
func (f *function) event(t *testing.T) (raw []byte, decoded events.APIGatewayV2HTTPRequest) {
	t.Helper()
	select {
	case raw = <-f.events:
	default:
		t.Fatal("the function was not invoked")
	}
	if err := json.Unmarshal(raw, &decoded, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("event %s: %v", raw, err)
	}
	return raw, decoded
}

func serve(t *testing.T, config apigateway.Config) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(gateway(t, config))
	t.Cleanup(server.Close)
	client = server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return server.URL, client
}

func gateway(t *testing.T, config apigateway.Config) *apigateway.Gateway {
	t.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	g, err := apigateway.New(config)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func do(t *testing.T, client *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return resp, string(body)
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestEventIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	fn := returns(`{"statusCode":202}`)
	url, client := serve(t, apigateway.Config{
		Routes: []string{"POST /agent/tickets/{ticket_id}"}, Function: fn,
		AccountID: "123456789012", APIID: "abc123", DomainName: "abc123.execute-api.us-east-1.amazonaws.com",
	})
	req := request(t, "POST", url+"/agent/tickets/TK%201001?tag=a&tag=b%20c&empty=&flag&semi=1;2&bad=%zz", `{"status":"<closed>"}`)
	req.Header = http.Header{
		"Accept-Encoding": {"identity"}, "Content-Type": {"application/json; charset=utf-8"}, "User-Agent": {"golden/1.0"},
		"X-Twice": {"1", "2"}, "X-Forwarded-For": {"203.0.113.7"},
		"Cookie": {"session=abc; theme=dark%20blue"}, "Te": {"trailers"},
	}
	before := time.Now().Truncate(time.Millisecond)
	resp, _ := do(t, client, req)
	if resp.StatusCode != 202 {
		t.Fatalf("status: got %d, want 202", resp.StatusCode)
	}
	got, event := fn.event(t)

	if id := event.RequestContext.RequestID; id == "" || id != resp.Header.Get("Apigw-Requestid") {
		t.Errorf("request id: got %q in the event and %q in the answer, want the same", id, resp.Header.Get("Apigw-Requestid"))
	}
	at := time.UnixMilli(event.RequestContext.TimeEpoch)
	if at.Before(before) || at.After(time.Now()) {
		t.Errorf("timeEpoch: got %v, want between %v and now", at, before)
	}
	if want := at.UTC().Format("02/Jan/2006:15:04:05 +0000"); event.RequestContext.Time != want {
		t.Errorf("time: got %q, want %q", event.RequestContext.Time, want)
	}
	host := strings.TrimPrefix(url, "http://")
	for pattern, replacement := range map[string]string{
		`"requestId":"[0-9a-f-]{36}"`:             `"requestId":"ID"`,
		`"time":"[^"]*"`:                          `"time":"TIME"`,
		`"timeEpoch":\d+`:                         `"timeEpoch":0`,
		`"host":"` + regexp.QuoteMeta(host) + `"`: `"host":"HOST"`,
		`"x-forwarded-port":"` + host[strings.LastIndex(host, ":")+1:]: `"x-forwarded-port":"PORT`,
		`"x-amzn-trace-id":"Root=1-[0-9a-f]{8}-[0-9a-f]{24}"`:          `"x-amzn-trace-id":"TRACE"`,
	} {
		got = regexp.MustCompile(pattern).ReplaceAll(got, []byte(strings.ReplaceAll(replacement, "$", "$$")))
	}
	want, err := os.ReadFile("testdata/request.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(canonical(t, want), canonical(t, got)); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func canonical(t *testing.T, text []byte) string {
	t.Helper()
	value := jsontext.Value(slices.Clone(text))
	if err := value.Canonicalize(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := value.Indent(); err != nil {
		t.Fatal(err)
	}
	return string(value)
}

func TestBodyTravelsAsTextOrBase64(t *testing.T) {
	t.Parallel()
	fn := returns(`{"statusCode":200}`)
	url, client := serve(t, apigateway.Config{Routes: []string{"$default"}, Function: fn})
	for _, c := range []struct {
		contentType, body string
		encoded           bool
	}{
		{"application/json", `{"a":"ü"}`, false},
		{"APPLICATION/JSON; charset=UTF-8", `{}`, false},
		{"application/xml", `<a/>`, false},
		{"application/javascript", `a()`, false},
		{"text/csv; header=present", "a,b", false},
		{"application/x-www-form-urlencoded", "a=b", true},
		{"application/problem+json", `{}`, true},
		{"application/octet-stream", "plain", true},
		{"image/png", "\x89PNG", true},
		{"", `{}`, true},
		{"broken/", `{}`, true},
		{"text/plain", "\xff\xfe", true},
		{"application/octet-stream", "", false},
	} {
		req := request(t, "POST", url+"/", c.body)
		req.Header.Set("Content-Type", c.contentType)
		if c.contentType == "" {
			req.Header.Del("Content-Type")
		}
		do(t, client, req)
		_, event := fn.event(t)
		got := event.Body
		if event.IsBase64Encoded {
			plain, err := base64.StdEncoding.DecodeString(got)
			if err != nil {
				t.Errorf("%s: body %q: %v", c.contentType, got, err)
			}
			got = string(plain)
		}
		if event.IsBase64Encoded != c.encoded || got != c.body {
			t.Errorf("%q with body %q: got encoded %v, body %q, want encoded %v", c.contentType, c.body, event.IsBase64Encoded, got, c.encoded)
		}
	}
}

func TestPathIsDecodedAndCutLikeTheService(t *testing.T) {
	t.Parallel()
	fn := returns(`{"statusCode":200}`)
	url, client := serve(t, apigateway.Config{Routes: []string{"GET /{proxy+}"}, Function: fn})
	for raw, want := range map[string]string{
		"/a%2Fb/c%20d": "/a/b/c d",
		"/a%3Fb?q=%20": "/a",
		"/%E4%BD%A0":   "/你",
	} {
		do(t, client, request(t, "GET", url+raw, ""))
		_, event := fn.event(t)
		if event.RawPath != want || event.RequestContext.HTTP.Path != want {
			t.Errorf("%s: got rawPath %q, http.path %q, want %q", raw, event.RawPath, event.RequestContext.HTTP.Path, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const oops = `{"message":"Internal Server Error"}`
	for name, c := range map[string]struct {
		payload string
		status  int
		headers map[string][]string
		body    string
	}{
		"whole answer": {
			`{"statusCode":201,"headers":{"content-type":"application/json","Location":"/x","x-number":7,"x-null":null,"x-bool":true},"body":"{\"a\":1}"}`,
			201,
			map[string][]string{"Content-Type": {"application/json"}, "Location": {"/x"}, "X-Number": {"7"}, "X-Bool": {"true"}, "X-Null": nil},
			`{"a":1}`,
		},
		"cookies":                {`{"statusCode":200,"cookies":["a=1","b=2; Secure"],"body":"x"}`, 200, map[string][]string{"Set-Cookie": {"a=1", "b=2; Secure"}}, "x"},
		"no content type":        {`{"statusCode":200,"body":"<p>"}`, 200, map[string][]string{"Content-Type": {"text/plain;charset=UTF-8"}}, "<p>"},
		"base64":                 {`{"statusCode":200,"isBase64Encoded":true,"headers":{"content-length":"4"},"body":"AP8="}`, 200, map[string][]string{"Content-Length": {"2"}}, "\x00\xff"},
		"status in a string":     {`{"statusCode":"418","body":""}`, 418, nil, ""},
		"nulls":                  {`{"statusCode":204,"headers":null,"cookies":null,"body":null}`, 204, nil, ""},
		"redirect":               {`{"statusCode":302,"headers":{"location":"/y"}}`, 302, map[string][]string{"Location": {"/y"}}, ""},
		"multi values not in v2": {`{"statusCode":200,"multiValueHeaders":{"x-a":["1","2"]},"body":""}`, 200, map[string][]string{"X-A": nil}, ""},
		"hop by hop":             {`{"statusCode":200,"headers":{"connection":"upgrade","transfer-encoding":"chunked","keep-alive":"1"},"body":"x"}`, 200, map[string][]string{"Keep-Alive": nil}, "x"},
		"JSON object as body":    {`{"ok":true,"StatusCode":500}`, 200, map[string][]string{"Content-Type": {"application/json"}}, `{"ok":true,"StatusCode":500}`},
		"JSON array as body":     {`[1]`, 200, map[string][]string{"Content-Type": {"application/json"}}, `[1]`},
		"null":                   {`null`, 200, nil, `null`},
		"not JSON":               {`oops`, 500, map[string][]string{"Content-Type": {"application/json"}}, oops},
		"nothing":                {``, 500, nil, oops},
		"status no number":       {`{"statusCode":"many"}`, 500, nil, oops},
		"status out of range":    {`{"statusCode":99}`, 500, nil, oops},
		"body no string":         {`{"statusCode":200,"body":{}}`, 500, nil, oops},
		"header no string":       {`{"statusCode":200,"headers":{"a":["1"]}}`, 500, nil, oops},
		"body no base64":         {`{"statusCode":200,"isBase64Encoded":true,"body":"%"}`, 500, nil, oops},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, client := serve(t, apigateway.Config{Routes: []string{"GET /"}, Function: returns(c.payload)})
			resp, body := do(t, client, request(t, "GET", url+"/", ""))
			if resp.StatusCode != c.status || body != c.body {
				t.Errorf("got %d %q, want %d %q", resp.StatusCode, body, c.status, c.body)
			}
			for _, name := range slices.Sorted(maps.Keys(c.headers)) {
				if diff := cmp.Diff(c.headers[name], resp.Header.Values(name)); diff != "" {
					t.Errorf("header %s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

func TestFunctionFailuresAreTheGatewaysOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result lambda.Result
		err    error
		status int
		body   string
	}{
		"function error": {
			lambda.Result{Payload: []byte(`{"statusCode":200,"errorMessage":"secret"}`), FunctionError: "Unhandled"},
			nil,
			500, `{"message":"Internal Server Error"}`,
		},
		"no invocation": {lambda.Result{}, errors.New("secret"), 500, `{"message":"Internal Server Error"}`},
		"throttled":     {lambda.Result{}, fmt.Errorf("submit: %w", lambda.ErrThrottled), 503, `{"message":"Service Unavailable"}`},
		"event too large": {
			lambda.Result{}, fmt.Errorf("submit: %w", lambda.ErrPayloadTooLarge), 413, `{"message":"Request Entity Too Large"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn := returns("")
			fn.answer = func(context.Context) (lambda.Result, error) { return c.result, c.err }
			url, client := serve(t, apigateway.Config{Routes: []string{"GET /"}, Function: fn})
			resp, body := do(t, client, request(t, "GET", url+"/", ""))
			if resp.StatusCode != c.status || body != c.body {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, body, c.status, c.body)
			}
		})
	}
}

func TestBodyAboveTheLimitNeverReachesTheFunction(t *testing.T) {
	t.Parallel()
	fn := returns(`{"statusCode":200}`)
	url, client := serve(t, apigateway.Config{Routes: []string{"POST /"}, Function: fn, MaxBody: 1000})
	for size, want := range map[int]int{1000: 200, 1001: 413} {
		resp, body := do(t, client, request(t, "POST", url+"/", strings.Repeat("x", size)))
		if resp.StatusCode != want {
			t.Errorf("%d bytes: got %d, want %d", size, resp.StatusCode, want)
		}
		if message := `{"message":"Request Entity Too Large"}`; want == 413 && body != message {
			t.Errorf("%d bytes: got %s, want %s", size, body, message)
		}
	}
	if got := len(fn.events); got != 1 {
		t.Errorf("the function was invoked %d times, want once", got)
	}
}

func TestSlowFunctionIsLeftRunningAndAnswered503(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		fn := returns("")
		fn.answer = func(ctx context.Context) (lambda.Result, error) {
			select {
			case <-ctx.Done():
			case <-time.After(45 * time.Second):
			}
			ended <- ctx.Err()
			return lambda.Result{}, ctx.Err()
		}
		g := gateway(t, apigateway.Config{Routes: []string{"GET /"}, Function: fn})
		start := time.Now()
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if want := `{"message":"Service Unavailable"}`; w.Code != 503 || w.Body.String() != want {
			t.Errorf("got %d %s, want 503 %s", w.Code, w.Body, want)
		}
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("answered after %v, want 30s", got)
		}
		if err := <-ended; err != nil || time.Since(start) != 45*time.Second {
			t.Errorf("the function ended after %v with %v, want undisturbed after 45s", time.Since(start), err)
		}
	})
}

func TestClientThatHangsUpDoesNotCancelTheFunctionButCloseDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cancelled error
		fn := returns("")
		fn.answer = func(ctx context.Context) (lambda.Result, error) {
			<-ctx.Done()
			cancelled = ctx.Err()
			return lambda.Result{}, ctx.Err()
		}
		g := gateway(t, apigateway.Config{Routes: []string{"GET /"}, Function: fn})
		ctx, hangUp := context.WithCancel(t.Context())
		go g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		synctest.Wait()
		hangUp()
		synctest.Wait()
		if cancelled != nil {
			t.Errorf("after the client hung up: the function got %v, want it to run on", cancelled)
		}
		_ = g.Close()
		if !errors.Is(cancelled, context.Canceled) {
			t.Errorf("after Close: the function got %v, want %v", cancelled, context.Canceled)
		}
	})
}
