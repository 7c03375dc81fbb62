package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"agentworker/internal/task"
)

// call is one request: what came in, what goes out, and what its log line says.
type call struct {
	*http.Request
	answer answer
	err    error

	taskID    task.ID
	threadID  string
	messageID string
}

// answer is a whole response. It is written only once it is complete, so that no failure can follow half
// of one.
type answer struct {
	status int // 0: 200
	header map[string]string
	body   []byte // JSON, unless the header says otherwise
}

type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// ServeHTTP is the life of one request.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	c := new(call)
	c.Request = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	c.Body = http.MaxBytesReader(w, r.Body, int64(a.MaxBodyBytes))

	if err := task.Guard(func() error { return a.route(c) }); err != nil {
		c.answer = problemOf(err).answer()
		c.err = err
	}
	c.answer.write(w)
	a.log(c, time.Since(started))
}

// route finds the handler and lets it fill in the answer. Handlers write nothing themselves; what gets
// written comes from the mux, which has found none: that the path takes other methods, that there is
// none like it, or a redirect from an unclean path, which no client of an API follows with a POST.
func (a *api) route(c *call) error {
	var told unrouted
	a.mux.ServeHTTP(&told, c.Request)
	switch told.status {
	case 0:
		return c.err
	case http.StatusMethodNotAllowed:
		return methodNotAllowed(told.Header().Get("Allow"))
	default:
		return errNoRoute
	}
}

// unrouted keeps what the mux answers when it has no route; status 0: it has one.
type unrouted struct {
	header http.Header
	status int
}

func (u *unrouted) Header() http.Header {
	if u.header == nil {
		u.header = http.Header{}
	}
	return u.header
}

func (u *unrouted) WriteHeader(status int)      { u.status = status }
func (u *unrouted) Write(b []byte) (int, error) { return len(b), nil }

func (ans answer) write(w http.ResponseWriter) {
	h := w.Header()
	if ans.status == http.StatusNotModified {
		for name, value := range ans.header {
			h.Set(name, value)
		}
		w.WriteHeader(ans.status)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	for name, value := range ans.header {
		h.Set(name, value)
	}
	h.Set("Content-Length", strconv.Itoa(len(ans.body)))
	w.WriteHeader(ans.code())
	w.Write(ans.body)
}

func (ans answer) code() int {
	if ans.status == 0 {
		return http.StatusOK
	}
	return ans.status
}

// log says what was asked for and how it went, in ids only: neither a question nor an answer, nor the
// query string, which can hold a question, belongs into a log.
func (a *api) log(c *call, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("method", knownMethod(c.Method)),
		slog.String("route", c.Pattern),
		slog.Int("status", c.answer.code()),
		slog.Int64("duration_ms", took.Milliseconds()),
	}
	for _, id := range []struct{ name, value string }{
		{"task_id", string(c.taskID)},
		{"thread_id", c.threadID},
		{"message_id", c.messageID},
		{"request_id", gatewayRequestID(c.Context())},
	} {
		if id.value != "" {
			attrs = append(attrs, slog.String(id.name, id.value))
		}
	}
	level := slog.LevelInfo
	if c.answer.code() >= http.StatusInternalServerError {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", c.err))
		var panicked *task.PanicError
		if errors.As(c.err, &panicked) {
			attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
		}
	}
	a.Logger.LogAttrs(c.Context(), level, "request", attrs...)
}

// knownMethod keeps a method that a client made up out of the log: it may say anything.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}
