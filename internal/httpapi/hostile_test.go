package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"agentworker/internal/httpapi"
)

func TestHostileBodies(t *testing.T) {
	t.Parallel()
	c := start(t)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	targets := []string{"/agent/query", "/agent/tickets/TK-1", "/agent/tasks"}
	for name, tc := range map[string]struct {
		body string
		code string
	}{
		"text":                  {`hello`, httpapi.CodeMalformedJSON},
		"cut off":               {`{"question":"x"`, httpapi.CodeMalformedJSON},
		"trailing data":         {`{"question":"x"} {}`, httpapi.CodeMalformedJSON},
		"trailing comma":        {`{"question":"x",}`, httpapi.CodeMalformedJSON},
		"blank":                 {` `, httpapi.CodeMalformedJSON},
		"null":                  {`null`, httpapi.CodeMalformedJSON},
		"list":                  {`[{"question":"x"}]`, httpapi.CodeMalformedJSON},
		"string":                {`"x"`, httpapi.CodeMalformedJSON},
		"number":                {`1`, httpapi.CodeMalformedJSON},
		"duplicate name":        {`{"question":"x","question":"y"}`, httpapi.CodeMalformedJSON},
		"duplicate escaped":     {`{"question":"x","\u0071uestion":"y"}`, httpapi.CodeMalformedJSON},
		"duplicate, nested":     {`{"question":"x","o":{"a":1,"a":2}}`, httpapi.CodeMalformedJSON},
		"invalid UTF-8":         {"{\"question\":\"\xff\"}", httpapi.CodeMalformedJSON},
		"invalid UTF-8 name":    {"{\"\xff\":1}", httpapi.CodeMalformedJSON},
		"lone surrogate":        {`{"question":"\ud800"}`, httpapi.CodeMalformedJSON},
		"raw control character": {"{\"question\":\"\x00\"}", httpapi.CodeMalformedJSON},
		"byte order mark":       {"\ufeff{\"question\":\"x\"}", httpapi.CodeMalformedJSON},
		"single quotes":         {`{'question':'x'}`, httpapi.CodeMalformedJSON},
		"NaN":                   {`{"question":NaN}`, httpapi.CodeMalformedJSON},
		"leading zero":          {`{"priority":01}`, httpapi.CodeMalformedJSON},
		"nested too deep":       {`{"o":` + deep(20000) + `}`, httpapi.CodeMalformedJSON},
		"unclosed depth":        {strings.Repeat(`{"o":`, 100000), httpapi.CodeMalformedJSON},
		"nested":                {`{"o":` + deep(9999) + `}`, httpapi.CodeInvalidField},
		"empty object":          {`{}`, httpapi.CodeInvalidField},
		"huge number":           {`{"priority":1e999999999,"delay_seconds":99999999999999999999}`, httpapi.CodeInvalidField},
		"empty name":            {`{"":1}`, httpapi.CodeInvalidField},
		"escaped NUL thread":    {`{"task":"echo","thread_id":"a\u0000b"}`, httpapi.CodeInvalidField},
		"hash in thread":        {`{"task":"echo","thread_id":"a#result"}`, httpapi.CodeInvalidField},
		"slash in thread":       {`{"task":"echo","thread_id":"../x"}`, httpapi.CodeInvalidField},
		"long thread":           {`{"task":"echo","thread_id":"` + strings.Repeat("a", 100000) + `"}`, httpapi.CodeInvalidField},
		"long name":             {`{"` + strings.Repeat("é", 100000) + `":1}`, httpapi.CodeInvalidField},
		"objects":               {`{"task":{},"thread_id":{},"question":{},"status":{}}`, httpapi.CodeInvalidField},
		"too large":             {`{"question":"` + strings.Repeat("x", 1<<20) + `"}`, httpapi.CodeTooLarge},
		"too large and no JSON": {strings.Repeat("[", 2<<20), httpapi.CodeTooLarge},
		"many unknown members":  {manyMembers(5000), httpapi.CodeInvalidField},
	} {
		for _, target := range targets {
			r := c.post(target, tc.body)
			status := map[string]int{httpapi.CodeMalformedJSON: 400, httpapi.CodeInvalidField: 422, httpapi.CodeTooLarge: 413}[tc.code]
			p := c.problem(r, status, tc.code)
			if tc.code == httpapi.CodeInvalidField && len(p.Errors) == 0 {
				t.Errorf("%s: %s names no field", name, r.body)
			}
			if name == "nested too deep" && !strings.Contains(p.Detail, "10,000 levels") {
				t.Errorf("%s: got %q, want the limit in it", name, p.Detail)
			}
			if len(r.body) > 20<<10 {
				t.Errorf("%s: answer of %d bytes", name, len(r.body))
			}
		}
	}
	for _, target := range targets {
		c.problem(c.post(target, ""), 400, httpapi.CodeMalformedJSON)
	}
	if sent := c.queue.messages(); len(sent) != 0 {
		t.Errorf("messages: got %d, want none", len(sent))
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	b.WriteString(`{"thread_id":"?"`)
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":0`, i)
	}
	return b.String() + "}"
}

func TestAwkwardTextIsDelivered(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, text := range []string{`\u0000`, `\ufffe\uffff`, "\uFFFE\uFFFF", "\u007f\u0085\u2028", `\ud83d\ude00`, "😀", `\\\"`, "<script>&amp;"} {
		c.accepted(c.post("/agent/query", `{"question":"`+text+`"}`))
		c.accepted(c.post("/agent/tasks", `{"task":"echo","o":{"`+text+`":["`+text+`"]},"deep":`+strings.Repeat("[", 9999)+strings.Repeat("]", 9999)+`}`,
			"Idempotency-Key", fmt.Sprintf("%x", text)))
	}
}

func TestHostilePaths(t *testing.T) {
	t.Parallel()
	c := start(t)
	long := strings.Repeat("a", 8000)
	for _, path := range []string{
		"/agent", "/agent/", "/agent/tasks/", "/agent/tasks/x/y", "/nope", "/agent/query/", "//agent/query", "/agent//query",
		"/agent/./tasks/x", "/agent/tasks/..", "/agent/tasks/../result/x", "/AGENT/result/x",
		"/agent/result/%00", "/agent/result/a%00b", "/agent/result/%2e%2e", "/agent/result/a%2Fb", "/agent/result/%23", "/agent/result/a%23result",
		"/agent/result/%ff%fe", "/agent/result/%E4%BD%A0", "/agent/result/%20", "/agent/result/a%0d%0aSet-Cookie:x", "/agent/result/" + long, "/agent/result/..%2f..%2fetc",
		"/agent/result/%2500",
		"/agent/tasks/x", "/agent/tasks/th-1.", "/agent/tasks/.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB", "/agent/tasks/th-1.01kb6z6y4zj5v1x9m0q7e2s3ab",
		"/agent/tasks/th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB", "/agent/tasks/th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3A%00", "/agent/tasks/" + long, "/agent/tasks/%00",
		"/agent/threads/th-1/history", "/agent/threads/%00/history", "/agent/threads/" + long + "/history", "/agent/threads//history",
		"/agent/threads/th-1/checkpoints/0", "/agent/threads/th-1/checkpoints/-1", "/agent/threads/th-1/checkpoints/x",
		"/agent/threads/th-1/checkpoints/1", "/agent/threads/th-1/checkpoints/18446744073709551615", "/agent/threads/th-1/checkpoints/18446744073709551616",
		"/agent/threads/th-1/checkpoints/1.0", "/agent/threads/%00/checkpoints/1",
		"/agent/tickets/x", "/agent/tickets/%00", "/agent/tickets/" + long, "/agent/tickets/a%20b",
	} {
		r := c.get(path)
		c.problem(r, 404, httpapi.CodeNotFound)
		if t.Failed() {
			t.Fatalf("path %s", path)
		}
	}
	for _, query := range []string{"a=%zz", "a;b", "limit=%ff", "%ff=1"} {
		c.problem(c.get("/agent/threads/th-1/history?"+query), 400, httpapi.CodeMalformedQuery)
		c.problem(c.post("/agent/query?"+query, question), 400, httpapi.CodeMalformedQuery)
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	c := start(t)
	id := "th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"
	for _, tc := range []struct{ method, path, allow string }{
		{"GET", "/agent/query", "POST"},
		{"PUT", "/agent/query", "POST"},
		{"OPTIONS", "/agent/query", "POST"},
		{"DELETE", "/agent/tasks/" + id, "GET, HEAD"},
		{"POST", "/agent/tasks/" + id, "GET, HEAD"},
		{"PATCH", "/agent/tickets/x", "GET, HEAD, POST"},
		{"TRACE", "/healthz", "GET, HEAD"},
		{"BREW", "/healthz", "GET, HEAD"},
		{"get", "/healthz", "GET, HEAD"},
	} {
		r := c.do(c.request(tc.method, tc.path, ""))
		c.problem(r, 405, httpapi.CodeMethodNotAllowed)
		if got := r.Header.Get("Allow"); got != tc.allow {
			t.Errorf("%s %s: Allow: got %q, want %q", tc.method, tc.path, got, tc.allow)
		}
	}
	if r := c.do(c.request("HEAD", "/agent/tasks/"+id, "")); r.StatusCode != 404 || len(r.body) != 0 {
		t.Errorf("HEAD: got %d %q, want 404 without a body", r.StatusCode, r.body)
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	c := start(t)
	post := func(headers ...string) reply { return c.do(c.request("POST", "/agent/query", question, headers...)) }
	for _, good := range []string{
		"", "application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", "APPLICATION/JSON", "application/vnd.api+json", "application/json; charset=us-ascii",
	} {
		var headers []string
		if good != "" {
			headers = []string{"Content-Type", good}
		}
		c.accepted(post(headers...))
	}
	c.accepted(post("Content-Encoding", "identity"))
	for _, bad := range []string{
		"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/octet-stream", "json", ";", "application/json; charset=latin1",
		"application/jsonp", "text/json", "a/b/c",
	} {
		c.problem(post("Content-Type", bad), 415, httpapi.CodeNotJSON)
	}
	c.problem(post("Content-Type", "application/json", "Content-Encoding", "gzip"), 415, httpapi.CodeNotJSON)
}
