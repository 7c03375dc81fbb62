package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// Handler is what AWS Lambda invokes. It never fails: whatever goes wrong is in the response.
type Handler = func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// Adapter feeds requests of API Gateway's HTTP APIs, and of Lambda's function URLs, to h. Both ways the
// payload format is 2.0. The request ends half a second before the function's deadline, so that
// there is always time to answer.
//
// Source: Amazon API Gateway Developer Guide, "Create AWS Lambda proxy integrations for HTTP APIs in API
// Gateway".
func Adapter(h http.Handler) Handler {
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if deadline, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerTime))
			defer cancel()
		}
		r, err := request(ctx, event)
		if err != nil {
			return failed(err, event), nil
		}
		var w recorder
		h.ServeHTTP(&w, r)
		resp, err := w.response(r)
		if err != nil {
			return failed(err, event), nil
		}
		return resp, nil
	}
}

const answerTime = 500 * time.Millisecond

// failed is the answer to a request that h cannot be asked, or whose answer cannot be given.
func failed(err error, event events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
	var w recorder
	problemOf(err).answer().write(&w)
	return w.encode(event.RequestContext.HTTP.Method)
}

// request is the event as net/http would have read it off the wire.
func request(ctx context.Context, event events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	body := []byte(event.Body)
	if event.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(event.Body); err != nil {
			return nil, malformedJSON("The body is said to be base64-encoded, and is not.")
		}
	}
	ctx = context.WithValue(ctx, gatewayKey{}, &gateway{
		caller:    principal(event.RequestContext.Authorizer),
		requestID: event.RequestContext.RequestID,
		encoded:   event.IsBase64Encoded,
	})
	header := http.Header{}
	for name, value := range event.Headers {
		header.Set(name, value)
	}
	if len(event.Cookies) > 0 {
		header.Set("Cookie", strings.Join(event.Cookies, "; "))
	}
	host := header.Get("Host")
	if host == "" {
		host = event.RequestContext.DomainName
	}
	header.Del("Host")
	u := location(event)
	r := &http.Request{
		Method:        event.RequestContext.HTTP.Method,
		URL:           u,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Host:          host,
		RemoteAddr:    event.RequestContext.HTTP.SourceIP,
		RequestURI:    u.RequestURI(),
	}
	return r.WithContext(ctx), nil
}

// location is the event's path and query. HTTP APIs hand the path on percent-decoded, function URLs as it
// was sent; no path of the API has a percent sign of its own, so that decoding once more does no harm.
// A stage other than the default one comes first in the path.
func location(event events.APIGatewayV2HTTPRequest) *url.URL {
	path := event.RawPath
	if stage := event.RequestContext.Stage; stage != "" && stage != "$default" {
		if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
			path = rest
		}
	}
	u := &url.URL{Path: path, RawQuery: event.RawQueryString}
	if plain, err := url.PathUnescape(path); err == nil && plain != path {
		u.Path, u.RawPath = plain, path
	}
	return u
}

// recorder keeps a response until it is complete.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// response is the recorded one in a form that fits through Lambda.
func (w *recorder) response(r *http.Request) (events.APIGatewayV2HTTPResponse, error) {
	w.WriteHeader(http.StatusOK)
	if err := w.shrink(r); err != nil {
		return events.APIGatewayV2HTTPResponse{}, err
	}
	return w.encode(r.Method), nil
}

func (w *recorder) encode(method string) events.APIGatewayV2HTTPResponse {
	resp := events.APIGatewayV2HTTPResponse{StatusCode: w.status, Headers: map[string]string{}}
	for name, values := range w.Header() {
		if name == "Set-Cookie" {
			resp.Cookies = values
			continue
		}
		resp.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	if method == http.MethodHead {
		return resp
	}
	resp.Headers["content-length"] = strconv.Itoa(w.body.Len())
	if body := w.body.Bytes(); utf8.Valid(body) {
		resp.Body = string(body)
	} else {
		resp.Body, resp.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return resp
}
