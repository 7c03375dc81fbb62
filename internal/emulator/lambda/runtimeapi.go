package lambda

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// invocation is one event on its way through a process.
type invocation struct {
	id       string
	trace    string
	payload  []byte
	deadline time.Time
	timedOut bool

	taken     chan bool     // one word from the poll that got it: true, or false when its client is gone
	completed chan struct{} // closed when the process asks for the next event after the answer

	mu       sync.Mutex
	answered bool
	reply    reply
}

type reply struct {
	payload       []byte
	functionError string
}

func newInvocation(id, trace string, payload []byte, deadline time.Time) *invocation {
	return &invocation{
		id: id, trace: trace, payload: payload, deadline: deadline,
		taken: make(chan bool, 1), completed: make(chan struct{}),
	}
}

func (i *invocation) answer() (reply, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reply, i.answered
}

// runtimeAPI is the Runtime API of one process: each has a server and a port of its own, which end with it, so that an
// answer can only be for the invocation that this very process holds.
// Source: AWS Lambda Developer Guide, "Using the Lambda runtime API for custom runtimes".
type runtimeAPI struct {
	function *Function
	work     chan *invocation
	ready    chan struct{} // closed by the first request for an event
	failed   chan struct{} // closed when the process reports that its init failed

	mu        sync.Mutex
	current   *invocation
	isReady   bool
	initError *InitError
	extension bool
}

func newRuntimeAPI(f *Function) *runtimeAPI {
	return &runtimeAPI{function: f, work: make(chan *invocation), ready: make(chan struct{}), failed: make(chan struct{})}
}

func (a *runtimeAPI) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", a.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", a.response)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", a.error)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", a.initFailure)
	mux.HandleFunc("POST /2020-01-01/extension/register", a.registerExtension)
	mux.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return mux
}

// next completes the invocation before it and waits for a new one.
func (a *runtimeAPI) next(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.current != nil {
		if _, answered := a.current.answer(); !answered {
			a.mu.Unlock()
			refuse(w, http.StatusForbidden, typeInvalidState, "State transition is not allowed: the current invocation has no response yet")
			return
		}
		close(a.current.completed)
		a.current = nil
	}
	if !a.isReady {
		a.isReady = true
		close(a.ready)
	}
	a.mu.Unlock()

	select {
	case <-r.Context().Done():
	case inv := <-a.work:
		if r.Context().Err() != nil {
			inv.taken <- false
			return
		}
		a.mu.Lock()
		a.current = inv
		a.mu.Unlock()
		inv.taken <- true
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Content-Length", strconv.Itoa(len(inv.payload)))
		header.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		header.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(inv.deadline.UnixMilli(), 10))
		header.Set("Lambda-Runtime-Invoked-Function-Arn", a.function.ARN())
		header.Set("Lambda-Runtime-Trace-Id", inv.trace)
		_, _ = w.Write(inv.payload) // a process that is gone is noticed by its exit
	}
}

// response takes the answer of the current invocation, and only of that one.
func (a *runtimeAPI) response(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, func(body []byte) reply {
		// A handler whose answer is a stream that broke says so in the trailers.
		if r.Trailer.Get("Lambda-Runtime-Function-Error-Type") != "" {
			cause, err := base64.StdEncoding.DecodeString(r.Trailer.Get("Lambda-Runtime-Function-Error-Body"))
			if err != nil || len(cause) == 0 {
				cause = errorPayload(r.Trailer.Get("Lambda-Runtime-Function-Error-Type"), "the response was cut short")
			}
			return reply{payload: cause, functionError: unhandled}
		}
		return reply{payload: body}
	})
}

func (a *runtimeAPI) error(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, func(body []byte) reply { return reply{payload: body, functionError: unhandled} })
}

func (a *runtimeAPI) answer(w http.ResponseWriter, r *http.Request, with func(body []byte) reply) {
	inv := a.holding(w, r.PathValue("id"))
	if inv == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxResponse))
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		refuse(w, http.StatusBadRequest, "InvalidRequest", "the body could not be read")
		return
	}
	answer := reply{payload: tooLargePayload(), functionError: unhandled}
	if tooLarge == nil {
		answer = with(body)
	}
	inv.mu.Lock()
	accepted := !inv.answered
	if accepted {
		inv.answered, inv.reply = true, answer
	}
	inv.mu.Unlock()
	switch {
	case !accepted:
		refuse(w, http.StatusForbidden, typeInvalidState, "State transition is not allowed: the invocation has been answered")
	case tooLarge != nil:
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Exceeded maximum allowed payload size")
	default:
		accept(w)
	}
}

// holding returns the invocation of this id if the process holds it, and refuses the request otherwise.
func (a *runtimeAPI) holding(w http.ResponseWriter, id string) *invocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil || a.current.id != id {
		refuse(w, http.StatusBadRequest, typeInvalidID, "Invalid request ID")
		return nil
	}
	return a.current
}

func (a *runtimeAPI) initFailure(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxResponse))
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidRequest", "the body could not be read")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isReady || a.initError != nil {
		refuse(w, http.StatusForbidden, typeInvalidState, "State transition is not allowed: the init has ended")
		return
	}
	failed := &InitError{Type: r.Header.Get("Lambda-Runtime-Function-Error-Type"), payload: body}
	var object errorObject
	if json.Unmarshal(body, &object) == nil {
		failed.Message = object.Message
		if failed.Type == "" {
			failed.Type = object.Type
		}
	}
	if failed.Type == "" {
		failed.Type = "Runtime.Unknown"
	}
	a.initError = failed
	close(a.failed)
	accept(w)
}

// registerExtension lets a function ask for SIGTERM before it is ended, which Lambda grants to whoever registers an
// extension. No events are delivered. Source: AWS Lambda Developer Guide, "Using the Lambda Extensions API".
func (a *runtimeAPI) registerExtension(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	a.extension = true
	a.mu.Unlock()
	w.Header().Set("Lambda-Extension-Identifier", uuid.NewString())
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, struct {
		Name    string `json:"functionName"`
		Version string `json:"functionVersion"`
		Handler string `json:"handler"`
	}{a.function.config.Name, "$LATEST", "bootstrap"})
}

func (a *runtimeAPI) wantsSIGTERM() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.extension
}

func (a *runtimeAPI) initFailed() *InitError {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.initError
}

func accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorPayload(kind, message))
}

func writeJSON(w io.Writer, value any) {
	_ = json.MarshalWrite(w, value) // the client is gone if it fails
}
