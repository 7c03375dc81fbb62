// Package modeltest is a model server for tests. It speaks OpenAI's chat completions and Bedrock's Converse over HTTP,
// answers from a script, breaks where it is told to, and keeps a ledger of what it was asked. Like the real ones it
// refuses a conversation whose parts do not follow from each other.
package modeltest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"agentworker/internal/agent/chat"
)

// The protocols that a [Call] came by.
const (
	OpenAI  = "openai"
	Bedrock = "bedrock"
)

// Call is a request that reached the server.
type Call struct {
	Protocol      string
	Model         string
	EffectKey     string       // the header Idempotency-Key, or Converse's request metadata
	Request       chat.Request // as read back from the protocol; OpenAI's does not tell a tool's error from its result
	Authorization string       // the header
	Problem       string       // why the request was refused as malformed; "": it was not
	Faulty        bool         // a [Server.Fault] was the answer
}

// Server answers. It is safe for concurrent use.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	key     string
	faults  []Reply
	respond func(Call) Reply
	calls   []Call
	arrived chan struct{} // closed and made anew at each call
}

// New starts a server on a free port of 127.0.0.1. Until it is told more, it says "Hello." to everything.
func New() *Server {
	s := &Server{respond: func(Call) Reply { return Say("Hello.") }, arrived: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.serveOpenAI)
	mux.HandleFunc("POST /model/{model}/converse", s.serveBedrock)
	s.http = httptest.NewServer(mux)
	return s
}

// Start is [New] for the length of a test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := New()
	t.Cleanup(s.Close)
	return s
}

// Close ends the server; answers under way are cut.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// OpenAIURL is what OPENAI_BASE_URL is set to.
func (s *Server) OpenAIURL() string { return s.http.URL + "/v1" }

// BedrockURL is what AWS_ENDPOINT_URL_BEDROCK_RUNTIME is set to.
func (s *Server) BedrockURL() string { return s.http.URL }

// RequireKey lets OpenAI's clients in with this key only; "": with any. It can change while the server runs.
func (s *Server) RequireKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// Converse sets the model's part in a conversation: the first reply answers the user, the next the results of the first
// one's tool calls, and so on. The place is read from the request, so that a request that is made again gets the same
// reply. Beyond the last reply the request is refused.
func (s *Server) Converse(replies ...Reply) {
	s.Respond(func(c Call) Reply {
		at := turn(c.Request.Messages)
		if at >= len(replies) {
			return Fail(http.StatusBadRequest, fmt.Sprintf("the script has %d replies, and this asks for number %d", len(replies), at+1))
		}
		return replies[at]
	})
}

// turn counts what the model has said since the user's last message.
func turn(messages []chat.Message) (n int) {
	for _, m := range slices.Backward(messages) {
		if m.Role == chat.RoleUser {
			break
		}
		if m.Role == chat.RoleAssistant {
			n++
		}
	}
	return n
}

// Respond lets a function decide. It is called by several goroutines at once.
func (s *Server) Respond(f func(Call) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.respond = f
}

// Fault adds replies that the next requests get, one each and in order, before [Server.Converse] or [Server.Respond] is asked again.
func (s *Server) Fault(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, replies...)
}

// Calls is the ledger so far, in the order of arrival.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// CallsByKey counts the ledger's calls by their effect keys.
func (s *Server) CallsByKey() map[string]int {
	counts := map[string]int{}
	for _, c := range s.Calls() {
		counts[c.EffectKey]++
	}
	return counts
}

// Await waits until n calls have arrived, whether they have been answered or not.
func (s *Server) Await(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		have, arrived := len(s.calls), s.arrived
		s.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d calls have arrived: %w", have, n, ctx.Err())
		}
	}
}

// record enters a call into the ledger and finds its reply.
func (s *Server) record(c Call) Reply {
	s.mu.Lock()
	var fault *Reply
	if c.Problem == "" && len(s.faults) > 0 {
		fault, s.faults = &s.faults[0], s.faults[1:]
		c.Faulty = true
	}
	s.calls = append(s.calls, c)
	close(s.arrived)
	s.arrived = make(chan struct{})
	respond := s.respond
	s.mu.Unlock()
	switch {
	case c.Problem != "":
		return Fail(http.StatusBadRequest, c.Problem)
	case fault != nil:
		return *fault
	}
	return respond(c)
}

// wait is the time before an answer; false: the client has gone.
func (r Reply) wait(ctx context.Context) bool {
	if r.delay > 0 && !received(ctx, time.After(r.delay)) {
		return false
	}
	return r.hold == nil || received(ctx, r.hold)
}

func received[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// send writes an answer, or breaks the connection as the reply says.
func (r Reply) send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	switch r.kind {
	case dropped:
		panic(http.ErrAbortHandler)
	case cut:
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case malformed:
		w.WriteHeader(status)
		_, _ = w.Write(body[:len(body)/2])
	default:
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}
}

// used is what the call has cost.
func (r Reply) used(request []byte) chat.Usage {
	if r.usage != (chat.Usage{}) {
		return r.usage
	}
	u := chat.Usage{InputTokens: len(request)/4 + 1, OutputTokens: len(r.text)/4 + 1}
	for _, c := range r.calls {
		u.OutputTokens += len(c.Name)/4 + len(c.Input)/4
	}
	return u
}
