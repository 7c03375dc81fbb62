package awsclient_test

import (
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworker/internal/awsclient"
)

// selfWriting is a body that would write itself out, as the SDK's does.
type selfWriting struct {
	io.Reader
	t *testing.T
}

func (s selfWriting) WriteTo(io.Writer) (int64, error) {
	s.t.Error("net/http got to know that the body can write itself out")
	return 0, io.EOF
}

func (selfWriting) Close() error { return nil }

func TestABodyIsReadAndNotAskedToWriteItself(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	client := awsclient.HTTPClient(0)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, selfWriting{strings.NewReader("hello"), t})
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != "hello" {
		t.Errorf("the server got %q (%v), want the body", got, err)
	}
}

func TestASilentServerCostsOneTry(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	client := awsclient.HTTPClient(50 * time.Millisecond)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("error is %v, want a timeout", err)
	}
	<-gone
}

func TestASignedRequestIsNotSentElsewhere(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.RedirectHandler("http://elsewhere.invalid/", http.StatusTemporaryRedirect))
	defer server.Close()
	client := awsclient.HTTPClient(0)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatalf("the redirect was followed: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status is %d, want the redirect itself", res.StatusCode)
	}
}

// With a bundle of certificates, as isolated regions have it, the configuration still loads.
func TestACertificateBundleIsAccepted(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(bundle, block, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	t.Setenv("AWS_REGION", "us-east-1")
	cfg, err := awsclient.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := cfg.HTTPClient.Do(req)
	if err != nil {
		t.Fatalf("the bundle's certificate is not trusted: %v", err)
	}
	_ = res.Body.Close()
}
