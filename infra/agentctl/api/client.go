// Package api calls the HTTP API of a deployment: with a signature or a token on AWS, plainly on this machine.
package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/infra/agentctl/deployment"
)

// Options of a [Client]. Their zero value is usable.
type Options struct {
	// Token is a bearer token for an API that takes those; "": requests are signed with the AWS credentials.
	Token string
	// Tries is how often a request is sent that can be repeated without harm, while the API cannot be reached, is
	// overloaded or asks for patience; 0: 4.
	Tries uint
}

const (
	defaultTries = 4
	// answerTimeout is longer than the API can be asked to wait.
	answerTimeout = 40 * time.Second
	// maxAnswer is more than a function can answer, which is 6 MB. Source: AWS Lambda Developer Guide, "Lambda quotas".
	maxAnswer       = 16 << 20
	maxIdlePerHost  = 256
	longestPause    = 10 * time.Second
	shortestPause   = 200 * time.Millisecond
	headerKey       = "Idempotency-Key"
	contentTypeJSON = "application/json"
)

// Client calls one API. It is safe for concurrent use.
type Client struct {
	base      *url.URL
	transport *http.Transport
	http      *http.Client
	aws       aws.Config
	local     bool
	signer    *v4.Signer
	token     string
	tries     uint
}

// New makes a client for the deployment's API. Close it when it is no longer needed.
func New(d *deployment.Deployment, o Options) (*Client, error) {
	base, err := url.Parse(d.APIURL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the stack's output for the API, %q, is no URL", d.APIURL)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: maxIdlePerHost, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true, ResponseHeaderTimeout: answerTimeout,
	}
	c := &Client{
		base: base, transport: transport, aws: d.AWS, local: d.Local, signer: v4.NewSigner(), token: o.Token, tries: o.Tries,
		http: &http.Client{
			Transport: transport,
			// The API does not redirect; a signed request must not go elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if c.tries == 0 {
		c.tries = defaultTries
	}
	c.throughEmulator()
	return c, nil
}

// throughEmulator finds APIs of an AWS emulator that answers for all of them at one address: their hosts are names
// below it, which no resolver knows.
func (c *Client) throughEmulator() {
	emulator, err := url.Parse(aws.ToString(c.aws.BaseEndpoint))
	if err != nil || emulator.Hostname() == "" || !strings.HasSuffix(c.base.Hostname(), "."+emulator.Hostname()) {
		return
	}
	c.base.Scheme = emulator.Scheme
	c.transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, emulator.Host)
	}
}

// Close drops the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// call sends a request, again while that may help and does no harm, and decodes the answer. raw is the answer as it
// came. Its errors are a [Problem] for what the API refuses, and those of net/http.
func (c *Client) call(ctx context.Context, method, path string, body jsontext.Value, key string, answer any) (raw jsontext.Value, err error) {
	tries := c.tries
	if method != http.MethodGet && key == "" {
		tries = 1
	}
	pauses := &backoff.ExponentialBackOff{InitialInterval: shortestPause, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: longestPause}
	raw, err = backoff.Retry(ctx, func() (jsontext.Value, error) { return c.once(ctx, method, path, body, key) },
		backoff.WithBackOff(pauses), backoff.WithMaxTries(tries), backoff.WithMaxElapsedTime(0))
	var refused *Problem
	switch {
	case errors.As(err, &refused):
		return nil, refused // without what the retries have wrapped around it
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return nil, fmt.Errorf("%s %s: the answer cannot be read: %w", method, path, err)
	}
	return raw, nil
}

func (c *Client) once(ctx context.Context, method, path string, body jsontext.Value, key string) (jsontext.Value, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	r.Header.Set("Accept", contentTypeJSON+", application/problem+json")
	if body != nil {
		r.Header.Set("Content-Type", contentTypeJSON)
	}
	if key != "" {
		r.Header.Set(headerKey, key)
	}
	if err := c.authorize(ctx, r, body); err != nil {
		return nil, backoff.Permanent(err)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: the answer broke off: %w", method, path, err)
	case response.StatusCode/100 == 2:
		return text, nil
	}
	return nil, again(problemOf(response, text), response.Header.Get("Retry-After"))
}

func (c *Client) authorize(ctx context.Context, r *http.Request, body []byte) error {
	switch {
	case c.local:
		return nil
	case c.token != "":
		r.Header.Set("Authorization", "Bearer "+c.token)
		return nil
	}
	credentials, err := c.aws.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("get AWS credentials: %w", err)
	}
	hash := sha256.Sum256(body)
	if err := c.signer.SignHTTP(ctx, credentials, r, hex.EncodeToString(hash[:]), "execute-api", c.aws.Region, time.Now()); err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	return nil
}

// again makes an error permanent unless the same request may succeed later.
func again(p *Problem, retryAfter string) error {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return backoff.Permanent(p)
	}
	seconds, err := strconv.Atoi(retryAfter)
	if err != nil || seconds < 1 || time.Duration(seconds)*time.Second > longestPause {
		return p
	}
	return errors.Join(p, backoff.RetryAfter(seconds))
}
