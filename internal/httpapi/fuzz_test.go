package httpapi_test

import (
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json/jsontext"
)

// FuzzAPI sends anything to the whole API, over a table and a queue that work: nothing that a client
// sends may look like a fault of the service.
func FuzzAPI(f *testing.F) {
	id := "th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"
	for _, seed := range []struct {
		method, path, query, contentType, key, body string
		encoded                                     bool
	}{
		{"POST", "/agent/query", "thread_id=a&question=b", "", "", "", false},
		{"POST", "/agent/query", "", "application/json", "k", `{"thread_id":"th-1","question":"why?","ordered":true,"priority":2,"delay_seconds":0}`, false},
		{"POST", "/agent/query", "", "application/octet-stream", "", "e30=", true},
		{"POST", "/agent/tickets/TK-1", "", "application/json", "k", `{"status":"closed"}`, false},
		{"POST", "/agent/tasks", "", "application/json", "k", `{"task":"echo","thread_id":"th-1","size":1,"o":{"a":[null,1e400,"\ufffe"]}}`, false},
		{"GET", "/agent/tasks/" + id, "", "", "", "", false},
		{"GET", "/agent/result/th-1", "", "", "", "", false},
		{"GET", "/agent/threads/th-1/history", "limit=3&cursor=MDFLQjZaNlk0Wko1VjFYOU0wUTdFMlMzQUI", "", "", "", false},
		{"GET", "/agent/threads/th-1/checkpoints/1", "", "", "", "", false},
		{"GET", "/agent/tickets/TK-1", "", "", "", "", false},
		{"HEAD", "/healthz", "", "", "", "", false},
		{"GET", "/", "", "", "", "", false},
		{"GET", "/agent/tasks/" + id, "wait=0", "", "", "", false},
		{"OPTIONS", "*", "%zz", ";", "\x00", "{", true},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.contentType, seed.key, seed.body, seed.encoded)
	}
	c := parts(f)
	f.Fuzz(func(t *testing.T, method, path, query, contentType, key, body string, encoded bool) {
		e := events.APIGatewayV2HTTPRequest{
			Version: "2.0", RawPath: path, RawQueryString: query, Body: body, IsBase64Encoded: encoded,
			Headers: map[string]string{},
		}
		e.RequestContext.Stage = "$default"
		e.RequestContext.HTTP.Method = method
		if contentType != "" {
			e.Headers["content-type"] = contentType
		}
		if key != "" {
			e.Headers["idempotency-key"] = key
		}
		resp := invoke(t, c.handler, e)
		if resp.StatusCode < 200 || resp.StatusCode >= 500 {
			t.Errorf("%q %q?%q: got %d %s", method, path, query, resp.StatusCode, resp.Body)
		}
		if method != "HEAD" && resp.Headers["content-type"] != "text/html; charset=utf-8" && !jsontext.Value(resp.Body).IsValid() {
			t.Errorf("%q %q?%q: got %d with no JSON: %q", method, path, query, resp.StatusCode, resp.Body)
		}
	})
}
