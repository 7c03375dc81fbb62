package httpapi_test

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json"

	"agentworker/internal/httpapi"
)

// event reads an event as API Gateway sends it.
func event(t testing.TB, name string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return e
}

func invoke(t testing.TB, h http.Handler, e events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
	t.Helper()
	resp, err := httpapi.Adapter(h)(t.Context(), e)
	if err != nil {
		t.Fatalf("invoke: got error %v, want every fault in the response", err)
	}
	return resp
}

// Case: base64 body
func TestCapturedEvents(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		status int
		body   string // in the answer
	}{
		"query-iam.json":              {202, `"thread_id":"th-1"`},
		"query-base64.json":           {202, `"thread_id":"th-1"`},
		"query-string.json":           {202, `"thread_id":"th-1"`},
		"query-bad-base64.json":       {400, httpapi.CodeMalformedJSON},
		"ticket-jwt-named-stage.json": {202, `"thread_id":"ticket-TK-1001"`},
		"history-decoded-path.json":   {404, "no thread of this id"},
	} {
		c := parts(t)
		resp := invoke(t, c.handler, event(t, name))
		if resp.StatusCode != want.status || !strings.Contains(resp.Body, want.body) || resp.IsBase64Encoded {
			t.Errorf("%s: got %d %s, want %d with %s", name, resp.StatusCode, resp.Body, want.status, want.body)
		}
		if resp.Headers["x-content-type-options"] != "nosniff" || resp.Headers["cache-control"] != "no-store" {
			t.Errorf("%s: headers: got %v", name, resp.Headers)
		}
		if want.status == 202 {
			if sent := c.queue.messages(); len(sent) != 1 {
				t.Errorf("%s: messages: got %d, want 1", name, len(sent))
			}
			if log := c.logs.String(); !strings.Contains(log, `"request_id":"`+event(t, name).RequestContext.RequestID+`"`) {
				t.Errorf("%s: log: got %s, want the request id", name, log)
			}
		}
	}
}

func TestEventBecomesTheRequest(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Add("X-Many", "1")
		w.Header().Add("X-Many", "2")
		w.WriteHeader(http.StatusTeapot)
		w.Write([]byte("\xff\x00"))
	})
	e := event(t, "query-iam.json")
	e.RawQueryString = "x=1&x=%20&y"
	resp := invoke(t, h, e)
	if got.Method != "POST" || got.URL.Path != "/agent/query" || got.URL.RawQuery != "x=1&x=%20&y" || got.Host != "id.execute-api.us-east-1.amazonaws.com" ||
		got.Header.Get("Cookie") != "session=abc; theme=dark" || got.Header.Get("X-Forwarded-For") != "203.0.113.7,198.51.100.1" ||
		got.ContentLength != int64(len(body)) || got.RemoteAddr != "203.0.113.7" {
		t.Errorf("request: got %+v", got)
	}
	if want := `{"thread_id":"th-1","question":"why?"}`; string(body) != want {
		t.Errorf("body: got %s, want %s", body, want)
	}
	if _, ok := got.Context().Deadline(); ok {
		t.Error("deadline: got one, want none where the invocation has none")
	}
	if resp.StatusCode != http.StatusTeapot || strings.Join(resp.Cookies, " ") != "a=1 b=2" || resp.Headers["x-many"] != "1,2" || resp.Headers["set-cookie"] != "" {
		t.Errorf("response: got %+v", resp)
	}
	if !resp.IsBase64Encoded || resp.Body != base64.StdEncoding.EncodeToString([]byte("\xff\x00")) {
		t.Errorf("body: got %q, want it base64-encoded", resp.Body)
	}
}

func TestRequestEndsBeforeTheFunction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	function, _ := ctx.Deadline()
	var got time.Time
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = r.Context().Deadline() })
	if _, err := httpapi.Adapter(h)(ctx, event(t, "query-iam.json")); err != nil {
		t.Fatal(err)
	}
	if left := function.Sub(got); left != 500*time.Millisecond {
		t.Errorf("left for the answer: got %s, want 500ms", left)
	}
}

func TestPathsOfEvents(t *testing.T) {
	t.Parallel()
	var got string
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.Path })
	for _, tc := range []struct{ stage, raw, want string }{
		{"$default", "/agent/result/a@b", "/agent/result/a@b"},
		{"$default", "/agent/result/a%40b", "/agent/result/a@b"},
		{"$default", "/agent/result/100%", "/agent/result/100%"},
		{"$default", "/agent/result/a b\x00", "/agent/result/a b\x00"},
		{"prod", "/prod/agent/query", "/agent/query"},
		{"prod", "/production/agent/query", "/production/agent/query"},
		{"prod", "/agent/query", "/agent/query"},
		{"", "", ""},
	} {
		e := event(t, "query-iam.json")
		e.RawPath, e.RequestContext.Stage = tc.raw, tc.stage
		if invoke(t, h, e); got != tc.want {
			t.Errorf("%s in stage %q: got %q, want %q", tc.raw, tc.stage, got, tc.want)
		}
	}
}

// Found by fuzzing: such paths do not come over HTTP, but an event can hold any.
func TestPathsThatHTTPCannotCarry(t *testing.T) {
	t.Parallel()
	c := parts(t)
	for _, path := range []string{"", "*", "agent/tickets/TK-1", "/agent/result/a b\x00", "/agent/result/\xff", "?", "/agent/query?x", "http://x/agent/query"} {
		for _, method := range []string{"GET", "POST", "CONNECT", "", "\x00", "G T"} {
			e := event(t, "query-iam.json")
			e.RawPath, e.RequestContext.HTTP.Method = path, method
			if resp := invoke(t, c.handler, e); resp.StatusCode != 404 && resp.StatusCode != 405 {
				t.Errorf("%q %q: got %d %s, want 404 or 405", method, path, resp.StatusCode, resp.Body)
			}
		}
	}
}

func TestCallerOfTheEventScopesKeys(t *testing.T) {
	t.Parallel()
	c := parts(t)
	ids := map[string]string{}
	for who, change := range map[string]func(*events.APIGatewayV2HTTPRequestContext){
		"nobody": func(r *events.APIGatewayV2HTTPRequestContext) { r.Authorizer = nil },
		"admin":  func(*events.APIGatewayV2HTTPRequestContext) {},
		"other": func(r *events.APIGatewayV2HTTPRequestContext) {
			r.Authorizer.IAM.UserARN = "arn:aws:iam::123456789012:user/Other"
		},
		"token": func(r *events.APIGatewayV2HTTPRequestContext) {
			r.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"iss": "i", "sub": "s"}},
			}
		},
		"other issuer": func(r *events.APIGatewayV2HTTPRequestContext) {
			r.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"iss": "j", "sub": "s"}},
			}
		},
	} {
		for range 2 {
			e := event(t, "query-iam.json")
			e.Headers["idempotency-key"] = "k"
			change(&e.RequestContext)
			resp := invoke(t, c.handler, e)
			var a acceptance
			decode(t, []byte(resp.Body), &a)
			id := string(a.TaskID)
			if owner, seen := ids[id]; seen && owner != who {
				t.Errorf("task %s: got for %s and for %s", id, owner, who)
			}
			ids[id] = who
		}
	}
	if len(ids) != 5 {
		t.Errorf("tasks: got %d, want one for each caller: %v", len(ids), ids)
	}
}

// Case: base64 body
func TestOctetStreamIsReadOnlyWhenItCameEncoded(t *testing.T) {
	t.Parallel()
	c := parts(t)
	e := event(t, "query-base64.json")
	if e.Headers["content-type"] != "application/octet-stream" {
		t.Fatalf("content type: got %q", e.Headers["content-type"])
	}
	e.Body, e.IsBase64Encoded = question, false
	if resp := invoke(t, c.handler, e); resp.StatusCode != 415 {
		t.Errorf("got %d %s, want 415", resp.StatusCode, resp.Body)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	c := parts(t)
	e := event(t, "query-string.json")
	e.RequestContext.HTTP.Method, e.RawPath = "HEAD", "/healthz"
	if resp := invoke(t, c.handler, e); resp.StatusCode != 200 || resp.Body != "" || resp.Headers["content-length"] != "15" {
		t.Errorf("got %+v, want the length of what GET would give, and nothing of it", resp)
	}
}

// Lambda fails an invocation whose response exceeds 6 MB.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, text)
		})
	}
	e := event(t, "query-string.json")
	zipped := event(t, "query-string.json")
	zipped.Headers["accept-encoding"] = "br, gzip;q=0.5"
	refused := event(t, "query-string.json")
	refused.Headers["accept-encoding"] = "gzip;q=0, identity"
	large, quotes, noise := strings.Repeat("x", 7<<20), strings.Repeat(`"`, 7<<19), incompressible(6<<20)

	if resp := invoke(t, answer(strings.Repeat("x", 2<<20)), zipped); len(resp.Body) != 2<<20 || resp.IsBase64Encoded {
		t.Errorf("what fits: got %d bytes, base64 %t, want it as it is", len(resp.Body), resp.IsBase64Encoded)
	}
	for name, tc := range map[string]struct {
		event events.APIGatewayV2HTTPRequest
		text  string
	}{
		"large": {e, large}, "quotes": {e, quotes}, "gzip refused": {refused, large}, "noise": {zipped, noise},
	} {
		resp := invoke(t, answer(tc.text), tc.event)
		if resp.StatusCode != http.StatusNotAcceptable || !strings.Contains(resp.Body, httpapi.CodeResponseTooLarge) {
			t.Errorf("%s: got %d, %d bytes, want 406", name, resp.StatusCode, len(resp.Body))
		}
	}
	for name, text := range map[string]string{"large": large, "quotes": quotes} {
		resp := invoke(t, answer(text), zipped)
		if resp.StatusCode != 200 || !resp.IsBase64Encoded || resp.Headers["content-encoding"] != "gzip" || resp.Headers["vary"] != "Accept-Encoding" {
			t.Fatalf("%s: got %d %v, want it compressed", name, resp.StatusCode, resp.Headers)
		}
		gz, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(resp.Body)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(gz); err != nil || string(got) != text {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(text))
		}
	}
}

// incompressible is text of a pseudo-random generator.
func incompressible(n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = alphabet[x%64]
	}
	return string(b)
}
