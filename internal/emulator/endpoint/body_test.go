package endpoint_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"agentworker/internal/emulator/endpoint"
)

// closedBody is a request's body that is closed when its content has been read, as net/http's server closes it when the
// answer begins.
type closedBody struct{ *bytes.Reader }

func (b closedBody) Read(p []byte) (int, error) {
	if b.Len() == 0 {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.Read(p)
}

func (closedBody) Close() error { return nil }

// The answer comes through whole although the request's body is closed before its end has been seen.
func TestAnswerOutlivesTheRequestsBody(t *testing.T) {
	t.Parallel()
	want := bytes.Repeat([]byte("x"), 4<<20)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 2))
		_, _ = w.Write(want)
	}))
	t.Cleanup(backend.Close)
	e := newEndpoint(t, endpoint.Config{DynamoDB: parse(t, backend.URL)})
	for range 20 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", closedBody{bytes.NewReader([]byte("{}"))})
		r.ContentLength = 2
		r.Header.Set("X-Amz-Target", "DynamoDB_20120810.Query")
		answer := answered(e, r)
		if answer.Code != http.StatusOK || !bytes.Equal(answer.Body.Bytes(), want) {
			t.Fatalf("got status %d and %d bytes, want all %d", answer.Code, answer.Body.Len(), len(want))
		}
	}
}

// answered serves a request; an answer that is broken off is what had come until then.
func answered(h http.Handler, r *http.Request) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() { _ = recover() }() // http.ErrAbortHandler
	h.ServeHTTP(w, r)
	return w
}

func TestTooLargeARequestIsRefused(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, endpoint.Config{DynamoDB: parse(t, "http://127.0.0.1:1")})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", bytes.NewReader(make([]byte, 21<<20)))
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.Query")
	if answer := answered(e, r); answer.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got status %d, want 413", answer.Code)
	}
}
