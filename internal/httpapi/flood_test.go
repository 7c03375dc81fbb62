package httpapi_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"agentworker/internal/httpapi"
)

// secret stands for what a client says. It fits no id, so that it has no business in a log in any place.
const secret = "s3cr~t"

// TestTenThousandHostileRequests sends random and hostile methods, paths, queries, headers and bodies, half of them as
// Lambda events and half of them over the wire: none may look like a fault of the service, hang, or leave its content in
// the log.
//
// Case: non-JSON body
// Case: base64 body (wrong ones among them)
func TestTenThousandHostileRequests(t *testing.T) {
	t.Parallel()
	const (
		requests = 10_000
		senders  = 8
		limit    = 30 * time.Second // for one request, on a machine that has other things to do
	)
	c := parts(t)
	adapter := httpapi.Adapter(c.handler)
	server := httptest.NewUnstartedServer(c.handler)
	server.Config.ErrorLog = log.New(c.logs, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	var mu sync.Mutex
	seen := map[int]int{}
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			g := hostile{rand.New(rand.NewPCG(seed, uint64(sender)))}
			for i := range requests / senders {
				r := g.request()
				began := time.Now()
				var status int
				var err error
				if i%2 == 0 {
					status, err = r.invoke(t.Context(), adapter, limit)
				} else {
					status, err = r.write(t.Context(), server.Listener.Addr().String(), limit)
				}
				if took := time.Since(began); err != nil || status < 200 || status >= 500 || took > limit {
					t.Errorf("sender %d, request %d: status %d, error %v, %v, for %+v", sender, i, status, err, took, r)
				}
				mu.Lock()
				seen[status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("answers: %v", seen)
	for _, status := range []int{200, 202, 400, 404, 405, 409, 413, 415, 422} {
		if seen[status] == 0 {
			t.Errorf("%d answers are %d: the requests miss a part of the API", seen[status], status)
		}
	}
	if text := c.logs.String(); strings.Contains(text, secret) {
		at := strings.Index(text, secret)
		t.Errorf("the log holds what a client said: …%s…", text[max(0, at-200):min(len(text), at+200)])
	}
}

// sending is a request before it is put into one form or another.
type sending struct {
	method, path, query, body string
	headers                   [][2]string
	encoded                   bool // the event says that the body is base64
	cut                       bool // the body ends before the length that was announced
}

func (s sending) invoke(ctx context.Context, h httpapi.Handler, limit time.Duration) (int, error) {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RawPath: s.path, RawQueryString: s.query, Body: s.body, IsBase64Encoded: s.encoded, Headers: map[string]string{},
	}
	if plain, err := url.PathUnescape(s.path); err == nil {
		e.RawPath = plain // as HTTP APIs do it
	}
	e.RequestContext.Stage = "$default"
	e.RequestContext.HTTP.Method = s.method
	for _, h := range s.headers {
		e.Headers[strings.ToLower(h[0])] = h[1]
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := h(ctx, e)
	return resp.StatusCode, err
}

// write puts the request on the wire as it is, which no HTTP client would do.
func (s sending) write(ctx context.Context, address string, limit time.Duration) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	target := s.path
	if s.query != "" {
		target += "?" + s.query
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api\r\nConnection: close\r\n", s.method, target)
	for _, h := range s.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	length := len(s.body)
	if s.cut {
		length += 100
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", length, s.body)
	// The server may answer and close before it has read everything: then what could not be written does not matter.
	_, _ = io.WriteString(conn, b.String())
	if half, ok := conn.(*net.TCPConn); ok && s.cut {
		_ = half.CloseWrite() // net/http takes it for a client that has gone, so not after a whole body
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: s.method})
	if err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

// hostile makes requests up.
type hostile struct{ *rand.Rand }

func (h hostile) of(list ...string) string { return list[h.IntN(len(list))] }
func (h hostile) one(in int) bool          { return h.IntN(in) == 0 }

func (h hostile) request() sending {
	s := sending{path: h.path(), query: h.query(), encoded: h.one(4), cut: h.one(40)}
	s.method = h.of("GET", "GET", "GET", "HEAD")
	if s.path == "/agent/query" || s.path == "/agent/tasks" || strings.HasPrefix(s.path, "/agent/tickets/") && h.one(2) {
		s.method = "POST"
	}
	if h.one(6) {
		s.method = h.of("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "BREW-"+secret)
	}
	if s.method == "POST" || h.one(5) {
		s.body = h.body()
	}
	if s.encoded && !h.one(3) {
		s.body = base64.StdEncoding.EncodeToString([]byte(s.body))
	}
	if !h.one(3) {
		s.headers = append(s.headers, [2]string{"Content-Type", "application/json"})
	}
	for range h.IntN(3) {
		s.headers = append(s.headers, h.header())
	}
	return s
}

func (h hostile) path() string {
	segment := func() string {
		return h.of("th-1", "TK-1", "unparsed", "ticket-TK-1", "th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB", "1", "0", "-1", "18446744073709551616", secret, "a%23result",
			"%00", "%2e%2e", "..", ".", "", "%ff", "%zz", "%E4%BD%A0", "a%2fb", "a%0d%0ax:"+secret, strings.Repeat("a", 1+h.IntN(3000)), secret+"%20", "*", "$", "'\"")
	}
	switch h.IntN(14) {
	case 0:
		return "/" + segment() + "/" + segment()
	case 1:
		return h.of("/", "*", "//", "/agent", "http://other/agent/query", "/healthz", "/openapi.json", "/agent/"+segment()+"/"+segment()+"/"+segment()+"/"+segment())
	case 2, 3, 4, 10, 11:
		return h.of("/agent/query", "/agent/tasks")
	case 5, 6:
		return "/agent/tasks/" + segment()
	case 7:
		return "/agent/result/" + segment()
	case 8:
		return "/agent/threads/" + segment() + "/history"
	case 9:
		return "/agent/threads/" + segment() + "/checkpoints/" + segment()
	default:
		return "/agent/tickets/" + segment()
	}
}

func (h hostile) query() string {
	if h.one(2) {
		return ""
	}
	var parts []string
	for range 1 + h.IntN(3) {
		parts = append(parts, h.of("thread_id", "question", "limit", "cursor", "priority", "ordered", "delay_seconds", "task_id", secret, "%ff", "a;b", "", "x[]")+
			h.of("=", "=", "=", "", "==")+h.of("th-1", secret, "1", "-1", "0", "99999999999999999999", "true", "%zz", "%00", "%ff%fe", "MDFLQjZaNlk0Wko1VjFYOU0wUTdFMlMzQUI",
			"e30", strings.Repeat("x", h.IntN(2000)), "a+b", "%F0%9F%98%80", "null"))
	}
	return strings.Join(parts, h.of("&", "&", ";"))
}

func (h hostile) header() [2]string {
	if h.one(4) {
		return [2]string{"Idempotency-Key", "key-1"}
	}
	name := h.of("Content-Type", "Content-Encoding", "Idempotency-Key", "Idempotency-Key", "Accept", "Authorization", "Cookie", "X-Forwarded-For", "Expect", "Range", "If-Match",
		"X-Amz-Date", "Origin", "X-"+secret)
	value := h.of("application/json", "application/json; charset=utf-7", "text/plain", "application/octet-stream", "multipart/form-data; boundary="+secret, ";", "",
		secret, "key-1", "key-1", "\x80\xff", strings.Repeat("k", h.IntN(600)), "gzip", "identity", "bytes=0-", "é", "Basic "+secret, "a, b", "100-continue-"+secret)
	return [2]string{name, value}
}

// body is a good body, or one that was spoiled in some way.
func (h hostile) body() string {
	value := func() string {
		return h.of(`"`+secret+`"`, `"why?"`, `"th-1"`, `"open"`, `"closed"`, `1`, `0`, `-1`, `1e400`, `9007199254740993`, `null`, `true`, `[]`, `{}`, `["`+secret+`",{"a":[]}]`,
			`"\ud800"`, `"\u0000"`, `"\ufffe\uffff"`, "\"\uFFFE\"", `"😀"`, "\"\xff\"", `"`+strings.Repeat("ä", h.IntN(500))+`"`, `{"`+secret+`":1}`, strings.Repeat("[", h.IntN(200)), `NaN`)
	}
	switch h.IntN(16) {
	case 0:
		return h.of("", " ", "hello "+secret, "null", "[]", `"`+secret+`"`, "{", "\x00", "\xef\xbb\xbf{}", strings.Repeat(`{"o":`, 2000), "<x>"+secret+"</x>", "a=b&c="+secret)
	case 1, 2:
		return `{"question":"` + secret + `"}`
	case 3:
		return `{"task":"echo","size":1,"thread_id":"th-1"}`
	case 4:
		return `{"status":"open"}`
	case 5:
		if h.one(4) {
			return `{"question":"` + strings.Repeat("x", 1<<20) + secret + `"}`
		}
	case 6:
		b := make([]byte, h.IntN(300))
		for i := range b {
			b[i] = byte(h.IntN(256))
		}
		return string(b)
	}
	var members []string
	for range 1 + h.IntN(5) {
		members = append(members, fmt.Sprintf("%q:%s", h.of("task", "task_id", "thread_id", "question", "status", "ordered", "priority", "delay_seconds", "ticket_id", "size",
			"Question", secret, "", "\u00e9"), value()))
	}
	text := []byte("{" + strings.Join(members, ",") + "}")
	if h.one(4) {
		for range 1 + h.IntN(4) {
			text[h.IntN(len(text))] = byte(h.IntN(256))
		}
	}
	if h.one(10) {
		text = text[:h.IntN(len(text))]
	}
	return string(text)
}
