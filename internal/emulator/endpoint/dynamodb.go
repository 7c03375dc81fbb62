package endpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
)

const healthTimeout = 2 * time.Second

func newTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		// DynamoDB's answers carry a checksum of the bytes that the client is to read.
		DisableCompression: true,
	}
}

// newProxy hands requests on as they are. When DynamoDB cannot be reached the client sees the error that DynamoDB itself
// has for a fault of its own, which SDKs retry.
func newProxy(target *url.URL, transport *http.Transport, logger *slog.Logger) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog:  slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) { // the client has gone
				logger.Warn("dynamodb does not answer", "operation", r.Header.Get("X-Amz-Target"), "error", err)
			}
			fail(w, http.StatusInternalServerError, "com.amazonaws.dynamodb.v20120810#InternalServerError",
				"The local DynamoDB does not answer.")
		},
	}
}

// maxRequest is more than DynamoDB takes.
const maxRequest = 20 << 20

// whole reads a request's body before it is handed on. Streamed through, it would cost answers: the server closes the body
// when an answer begins; if the transport has not seen the body's end by then, it takes that for an error and drops the
// connection to DynamoDB, with the rest of the answer.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := read(http.MaxBytesReader(w, r.Body, maxRequest), r.ContentLength)
		if err != nil {
			fail(w, http.StatusRequestEntityTooLarge, "com.amazon.coral.service#SerializationException", "The request could not be read: "+err.Error())
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		next.ServeHTTP(w, r)
	})
}

func read(body io.Reader, length int64) ([]byte, error) {
	if length < 0 || length > maxRequest {
		return io.ReadAll(body)
	}
	all := make([]byte, length)
	_, err := io.ReadFull(body, all)
	return all, err
}

// health says whether what lies behind the endpoint answers: 200, or 503 when DynamoDB does not.
func (e *Endpoint) health(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Status   string `json:"status"`
		DynamoDB string `json:"dynamodb,omitzero"`
	}{Status: "ok"}
	status := http.StatusOK
	if e.dynamodb != nil {
		answer.DynamoDB = "ok"
		if err := e.probe(r.Context()); err != nil {
			answer.Status, answer.DynamoDB = "unavailable", "does not answer"
			status = http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, answer) // the client is gone
}

// probe takes any answer for a sign of life: what a DynamoDB says to GET / differs from one to the next.
func (e *Endpoint) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.config.DynamoDB.String(), nil)
	if err != nil {
		return err
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
