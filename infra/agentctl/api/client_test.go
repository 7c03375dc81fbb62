package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"agentworker/infra/agentctl/api"
	"agentworker/infra/agentctl/deployment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var keys = aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret", SessionToken: "session"}

// client is one for the API that h is.
func client(t *testing.T, h http.Handler, o api.Options, change ...func(*deployment.Deployment)) *api.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	d := &deployment.Deployment{APIURL: server.URL, AWS: aws.Config{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken),
	}}
	for _, fn := range change {
		fn(d)
	}
	c, err := api.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// signature is what a request's Authorization has to be, in the region and for the service that API Gateway has.
func signature(t *testing.T, r *http.Request, body []byte) string {
	t.Helper()
	_, list, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	again, err := http.NewRequestWithContext(t.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(), strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(list, ";") {
		if value := r.Header.Values(name); value != nil {
			again.Header[http.CanonicalHeaderKey(name)] = value
		}
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Error(err)
	}
	hash := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, again, hex.EncodeToString(hash[:]), "execute-api", "eu-west-1", at); err != nil {
		t.Error(err)
	}
	return again.Header.Get("Authorization")
}

func TestRequestsAreAuthorized(t *testing.T) {
	t.Parallel()
	local := func(d *deployment.Deployment) { d.Local = true }
	for _, c := range []struct {
		what   string
		token  string
		change []func(*deployment.Deployment)
		want   func(r *http.Request, body []byte) string
	}{
		{"signed", "", nil, func(r *http.Request, body []byte) string { return signature(t, r, body) }},
		{"by token", "abc", nil, func(*http.Request, []byte) string { return "Bearer abc" }},
		{"not at all on this machine", "abc", []func(*deployment.Deployment){local}, func(*http.Request, []byte) string { return "" }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var bodies []string
			a := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				bodies = append(bodies, r.URL.RequestURI()+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
				if got, want := r.Header.Get("Authorization"), c.want(r, body); got != want {
					t.Errorf("%s: Authorization is\n%q, want\n%q", r.URL.Path, got, want)
				}
				_, _ = io.WriteString(w, "{}")
			}), api.Options{Token: c.token}, c.change...)
			if _, err := a.Ask(t.Context(), jsontext.Value(`{"question":"什么"}`), "k"); err != nil {
				t.Error(err)
			}
			if _, err := a.Task(t.Context(), "th-a:b@c=d+e.x", 2500*time.Millisecond); err != nil {
				t.Error(err)
			}
			want := []string{`/agent/query k {"question":"什么"}`, "/agent/tasks/th-a:b@c=d+e.x?wait=2  "}
			if len(bodies) != 2 || bodies[0] != want[0] || bodies[1] != want[1] {
				t.Errorf("sent %q, want %q", bodies, want)
			}
		})
	}
}

func problem(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"status":418,"code":"`+code+`","detail":"because"}`)
	}
}

func TestWhatDoesNoHarmIsSentAgain(t *testing.T) {
	t.Parallel()
	unavailable := problem(503, "UNAVAILABLE")
	dropped := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	broken := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"task_id":`)
	}
	ask := func(key string) func(*api.Client) error {
		return func(c *api.Client) error { _, err := c.Ask(t.Context(), jsontext.Value(`{"a":1}`), key); return err }
	}
	task := func(c *api.Client) error { _, err := c.Task(t.Context(), "th-1.x", 0); return err }
	for _, c := range []struct {
		what  string
		first http.HandlerFunc
		call  func(*api.Client) error
		tries uint
		want  int64
	}{
		{"a read", unavailable, task, 0, 2},
		{"a read whose connection is dropped", dropped, task, 0, 2},
		{"a read whose answer breaks off", broken, task, 0, 2},
		{"a submission with a key", unavailable, ask("k"), 0, 2},
		{"a submission with a key whose connection is dropped", dropped, ask("k"), 0, 2},
		{"not a submission without a key", unavailable, ask(""), 0, 1},
		{"not what has one try", unavailable, task, 1, 1},
		{"not what is wrong", problem(422, "INVALID_FIELD"), task, 0, 1},
		{"not what is refused", problem(500, "INTERNAL"), task, 0, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			a := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.Method == http.MethodPost && string(body) != `{"a":1}` {
					t.Errorf("body is %s", body)
				}
				if calls.Add(1) == 1 {
					c.first(w, r)
					return
				}
				_, _ = io.WriteString(w, "{}")
			}), api.Options{Tries: c.tries})
			if err := c.call(a); (err == nil) != (c.want > 1) {
				t.Errorf("error is %v", err)
			}
			if calls.Load() != c.want {
				t.Errorf("sent %d times, want %d", calls.Load(), c.want)
			}
		})
	}
}

func TestTheAPIsPatienceIsKept(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	a := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			problem(429, "")(w, r)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}), api.Options{})
	began := time.Now()
	if _, err := a.Task(t.Context(), "th-1.x", 0); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("asked again after %v, want not before 1 s", took)
	}
}

func TestProblemsAreOneClearLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status      int
		media, body string
		want        string
	}{
		{404, "application/problem+json", `{"status":404,"code":"NOT_FOUND","detail":"There is no task of this id."}`, "NOT_FOUND: There is no task of this id."},
		{
			422, "application/problem+json",
			`{"code":"INVALID_FIELD","detail":"To be mended: a, b.","errors":[{"field":"a","problem":"must be given"},{"field":"b","problem":"must not be"}]}`,
			"INVALID_FIELD: a must be given; b must not be",
		},
		{403, "application/json", `{"message":"Forbidden"}`, "HTTP 403: Forbidden; the API lets in AWS credentials that may execute-api:Invoke"},
		{401, "application/json", `{"message":"Unauthorized"}`, "AGENTWORKER_TOKEN"},
		{429, "application/json", `{"message":"Too Many Requests"}`, "HTTP 429: Too Many Requests; the API's limit"},
		{502, "text/html", "<html>", "HTTP 502: Bad Gateway"},
		{302, "text/html", "", "HTTP 302: Found"},
		{500, "application/problem+json", `{"code":`, "HTTP 500: Internal Server Error"},
	} {
		a := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.media)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}), api.Options{Tries: 1})
		_, err := a.Task(t.Context(), "th-1.x", 0)
		var got *api.Problem
		if !errors.As(err, &got) || got.Status != c.status || !strings.HasPrefix(err.Error(), c.want) && !strings.HasSuffix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d %s: error is %v, want one line with %q", c.status, c.body, err, c.want)
		}
	}
}

func TestAnswersComeThroughAsTheyAre(t *testing.T) {
	t.Parallel()
	const text = `{ "task_id":"th-1.x","status":"succeeded","result":{"n":9007199254740993,"e":1e400},"error":null,"updated_at":null,"next":[] }`
	a := client(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }), api.Options{})
	got, err := a.Task(t.Context(), "th-1.x", 0)
	if err != nil || string(got.Raw) != text || string(got.Result) != `{"n":9007199254740993,"e":1e400}` || !got.Ended() || got.UpdatedAt != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The host of an API in an AWS emulator is a name that no resolver knows.
func TestAnEmulatorsAPIIsFound(t *testing.T) {
	t.Parallel()
	var host string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host = r.Host
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	name := "abc123.execute-api." + strings.TrimPrefix(server.URL, "http://")
	a := client(t, http.NotFoundHandler(), api.Options{}, func(d *deployment.Deployment) {
		d.APIURL, d.AWS.BaseEndpoint = "https://"+name, aws.String(server.URL)
	})
	if _, err := a.Ticket(t.Context(), "TK-1"); err != nil || host != name {
		t.Errorf("asked %q (%v), want %q at the emulator", host, err, name)
	}
}
