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
	"sync"
	"sync/atomic"
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

// As many requests at once as a batch of 32 records makes need no new connections when they come again.
func TestABatchsConnectionsAreKept(t *testing.T) {
	t.Parallel()
	const atOnce = 64
	var arrived sync.WaitGroup
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived.Done()
		arrived.Wait() // all are under way at once
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := awsclient.HTTPClient(0)
	defer client.CloseIdleConnections()
	batch := func() {
		arrived.Add(atOnce)
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
			})
		}
		all.Wait()
	}
	batch()
	first := connections.Load()
	for range 3 {
		batch()
	}
	if got := connections.Load(); first != atOnce || got > first+atOnce/2 { // one that is not back yet when the next request comes is replaced
		t.Errorf("%d connections for the first %d requests and %d in all, want hardly any more", first, atOnce, got)
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
	for name, client := range map[string]*http.Client{
		"its own":           awsclient.HTTPClient(0),
		"a configuration's": awsclient.Waiting(awsclient.Plain(awsclient.Buildable(0)), 0),
	} {
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Errorf("%s: the redirect was followed: %v", name, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusTemporaryRedirect {
			t.Errorf("%s: status is %d, want the redirect itself", name, res.StatusCode)
		}
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
	setEnvironment(t, append([]string{"AWS_CA_BUNDLE", bundle}, lambda...)...)
	cfg, err := awsclient.Load()
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
