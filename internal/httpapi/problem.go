package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Codes of the problem documents. They are stable: clients may decide on them.
const (
	CodeMalformedJSON       = "MALFORMED_JSON"         // 400: the body is not one JSON object
	CodeMalformedQuery      = "MALFORMED_QUERY"        // 400: the query string cannot be decoded
	CodeNotFound            = "NOT_FOUND"              // 404: no such path, task, thread, checkpoint or ticket
	CodeMethodNotAllowed    = "METHOD_NOT_ALLOWED"     // 405: "Allow" says which are
	CodeResponseTooLarge    = "RESPONSE_TOO_LARGE"     // 406: the answer needs "Accept-Encoding: gzip"
	CodeIdempotencyKeyReuse = "IDEMPOTENCY_KEY_REUSED" // 409: the key was used for something else
	CodeTooLarge            = "TOO_LARGE"              // 413: the body or its message
	CodeNotJSON             = "NOT_JSON"               // 415: the content type or coding is another
	CodeInvalidField        = task.CodeInvalidField    // 422: "errors" names every one
	CodeInternal            = "INTERNAL"               // 500: a fault of the API itself
	CodeQueueUnavailable    = "QUEUE_UNAVAILABLE"      // 503: not queued; try again
	CodeUnavailable         = "UNAVAILABLE"            // 503: the table cannot be reached; try again
)

// codes lists them for the API's description.
var codes = []string{
	CodeMalformedJSON, CodeMalformedQuery, CodeNotFound, CodeMethodNotAllowed, CodeResponseTooLarge, CodeIdempotencyKeyReuse,
	CodeTooLarge, CodeNotJSON, CodeInvalidField, CodeInternal, CodeQueueUnavailable, CodeUnavailable,
}

// problem is an error that says itself what the client gets.
type problem struct {
	status int
	code   string
	detail string
	fields task.FieldErrors
	header map[string]string
	cause  error // for the log
}

func (p *problem) Error() string {
	if p.cause != nil {
		return p.code + ": " + p.cause.Error()
	}
	return p.code + ": " + p.detail
}

func (p *problem) Unwrap() error { return p.cause }

var errNoRoute = notFound("There is nothing at this path.")

func notFound(format string, args ...any) *problem {
	return &problem{status: http.StatusNotFound, code: CodeNotFound, detail: fmt.Sprintf(format, args...)}
}

func malformedJSON(detail string) *problem {
	return &problem{status: http.StatusBadRequest, code: CodeMalformedJSON, detail: detail}
}

func malformedQuery(detail string) *problem {
	return &problem{status: http.StatusBadRequest, code: CodeMalformedQuery, detail: detail}
}

func tooLarge(format string, args ...any) *problem {
	return &problem{status: http.StatusRequestEntityTooLarge, code: CodeTooLarge, detail: fmt.Sprintf(format, args...)}
}

func notJSON(detail string) *problem {
	return &problem{status: http.StatusUnsupportedMediaType, code: CodeNotJSON, detail: detail}
}

func methodNotAllowed(allow string) *problem {
	return &problem{
		status: http.StatusMethodNotAllowed, code: CodeMethodNotAllowed,
		detail: "This path takes " + allow + ".", header: map[string]string{"Allow": allow},
	}
}

func unavailable(code, detail string, cause error) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, code: code, detail: detail,
		header: map[string]string{"Retry-After": "2"}, cause: cause,
	}
}

// problemOf decides what a client gets for an error. What nobody has foreseen comes from the table or
// the way to it, so that trying again is the right advice; only a panic is a fault of ours.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var fields task.FieldErrors
	var panicked *task.PanicError
	switch {
	case errors.As(err, &fields):
		return &problem{
			status: http.StatusUnprocessableEntity, code: CodeInvalidField,
			detail: describe(fields), fields: fields,
		}
	case errors.Is(err, checkpoint.ErrNotFound):
		return notFound("There is nothing of this id.")
	case errors.As(err, &panicked):
		return &problem{
			status: http.StatusInternalServerError, code: CodeInternal,
			detail: "The API has failed at this request. The fault is logged.",
		}
	default:
		return unavailable(CodeUnavailable, "The service cannot reach its table at the moment. Send the same request again.", err)
	}
}

// A list of faults is for a person to read, and the names in it are the client's.
const (
	maxFieldErrors = 50
	maxNameLength  = 100
)

func describe(fields task.FieldErrors) string {
	names := make([]string, 0, len(fields))
	for _, f := range fields[:min(len(fields), maxFieldErrors)] {
		if name := clip(f.Field); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	rest := ""
	if more := len(fields) - maxFieldErrors; more > 0 {
		rest = fmt.Sprintf(" and %d more", more)
	}
	return "To be mended: " + strings.Join(names, ", ") + rest + "."
}

func clip(name string) string {
	if len(name) <= maxNameLength {
		return name
	}
	return strings.ToValidUTF8(name[:maxNameLength], "") + "…"
}

func (p *problem) answer() answer {
	doc := new(object).
		// "about:blank" says that the problem is what the status says; "code" tells more.
		add("type", "about:blank").
		add("title", http.StatusText(p.status)).
		add("status", p.status).
		add("detail", p.detail).
		add("code", p.code)
	errs := make([]fieldView, 0, len(p.fields))
	for _, f := range p.fields[:min(len(p.fields), maxFieldErrors)] {
		errs = append(errs, fieldView{Field: clip(f.Field), Problem: f.Problem})
	}
	doc.add("errors", errs)
	// Strings and numbers of ours cannot fail to encode.
	body, _ := doc.bytes()
	ans := answer{status: p.status, header: map[string]string{"Content-Type": "application/problem+json"}, body: body}
	for name, value := range p.header {
		ans.header[name] = value
	}
	return ans
}

type fieldView struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}
