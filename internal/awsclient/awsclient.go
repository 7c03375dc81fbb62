// Package awsclient is how the functions, the local chain and the operator's command line call AWS over HTTP.
package awsclient

import (
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// answerTimeout is how long a function waits for an answer to begin. A connection that has died silently then costs
// one try of the SDK's and not the whole invocation. No call of the functions is a long poll of more than a second.
const answerTimeout = 5 * time.Second

// idleConnections is how many connections to one service are kept for the next requests: as many as the worker has at once,
// which claims a task and reads its thread side by side for up to 32 records. The SDK keeps 10, and makes all
// others anew for each batch.
const idleConnections = 64

// Buildable has the settings of [HTTPClient], and can be given more; [Plain] belongs around what it becomes.
func Buildable(answerTimeout time.Duration) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = answerTimeout
		t.MaxIdleConnsPerHost = idleConnections
		t.MaxIdleConns = max(t.MaxIdleConns, idleConnections)
	})
}

// HTTPClient has the SDK's settings and a limit on the wait for an answer to begin; 0: none.
func HTTPClient(answerTimeout time.Duration) *http.Client {
	return withoutRedirects(Buildable(answerTimeout))
}

func withoutRedirects(b *awshttp.BuildableClient) *http.Client {
	return &http.Client{
		Transport: plainTransport{b.GetTransport()},
		// No service of ours redirects; a signed request must not go elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Waiting is the client of a configuration that [Load] made, which trusts whom that says, with another limit on the wait for
// an answer to begin; 0: none. In the place of any other client it is [HTTPClient].
func Waiting(c aws.HTTPClient, answerTimeout time.Duration) *http.Client {
	if p, ok := c.(plainBody); ok {
		if b, ok := p.HTTPClient.(*awshttp.BuildableClient); ok {
			return withoutRedirects(b.WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = answerTimeout }))
		}
	}
	return HTTPClient(answerTimeout)
}

// Plain sends requests with bodies that net/http can only read.
func Plain(c aws.HTTPClient) aws.HTTPClient { return plainBody{c} }

type plainBody struct{ aws.HTTPClient }

func (p plainBody) Do(r *http.Request) (*http.Response, error) { return p.HTTPClient.Do(plain(r)) }

type plainTransport struct{ *http.Transport }

func (p plainTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.Transport.RoundTrip(plain(r))
}

// plain hides the WriteTo method of a request's body. The SDK (smithy-go 1.28.9) closes the body as soon as an answer is
// there, and a closed one answers WriteTo with io.EOF; when that comes before net/http has seen the body's end, as it may
// with a server this near, net/http drops the connection and with it the rest of the answer.
func plain(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	r = r.Clone(r.Context())
	r.Body = struct{ io.ReadCloser }{r.Body}
	return r
}
