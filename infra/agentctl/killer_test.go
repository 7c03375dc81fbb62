package main_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"agentworker/internal/task"
)

// killer stands between agentctl and the AWS APIs: it counts the copies that reach the queue, and kills agentctl at a call.
type killer struct {
	url   string
	queue string

	mu     sync.Mutex
	victim *os.Process
	calls  int  // until the victim dies
	after  bool // when the call has taken effect
	sent   map[task.ID]map[string]bool
}

func newKiller(t *testing.T, y *yard, queue string) *killer {
	t.Helper()
	k := &killer{queue: queue, sent: map[task.ID]map[string]bool{}}
	target, err := url.Parse(y.AWSURL())
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	proxy := &httputil.ReverseProxy{
		Transport: transport, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: k.answered,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it died while it asked
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		k.strike(false)
		// A call that has arrived takes effect, whatever becomes of the caller; the proxy would break it off when it sees a
		// context end, or a w that tells of the end of the connection.
		r = r.WithContext(context.WithValue(context.WithoutCancel(r.Context()), bodyKey{}, body))
		proxy.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}))
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	k.url = server.URL
	return k
}

type bodyKey struct{}

// aim lets the program die at its so manieth call; nil: none does.
func (k *killer) aim(victim *os.Process, calls int, after bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.victim, k.calls, k.after = victim, calls, after
}

func (k *killer) strike(after bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.victim == nil || k.after != after {
		return
	}
	if k.calls--; k.calls <= 0 {
		_ = k.victim.Kill() // it may have ended by itself
		k.victim = nil
	}
}

func (k *killer) answered(res *http.Response) error {
	asked, _ := res.Request.Context().Value(bodyKey{}).([]byte)
	if res.Request.Header.Get("X-Amz-Target") == "AmazonSQS.SendMessage" && res.StatusCode == http.StatusOK {
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		res.Body = io.NopCloser(bytes.NewReader(answer))
		var in struct {
			Queue string `json:"QueueUrl"`
			Body  string `json:"MessageBody"`
		}
		var out struct {
			ID string `json:"MessageId"`
		}
		var message struct {
			ID task.ID `json:"task_id"`
		}
		for text, v := range map[*[]byte]any{&asked: &in, &answer: &out} {
			if err := json.Unmarshal(*text, v); err != nil {
				return err
			}
		}
		if err := json.Unmarshal([]byte(in.Body), &message); err != nil {
			return err
		}
		k.mu.Lock()
		if strings.HasSuffix(in.Queue, "/"+k.queue) {
			if k.sent[message.ID] == nil {
				k.sent[message.ID] = map[string]bool{}
			}
			k.sent[message.ID][out.ID] = true
		}
		k.mu.Unlock()
	}
	k.strike(true)
	return nil
}

// copies is how many messages of the task have come onto the queue.
func (k *killer) copies(id task.ID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.sent[id])
}
