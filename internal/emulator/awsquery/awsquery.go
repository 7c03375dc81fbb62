// Package awsquery is the protocol of AWS's older services: a posted form with an Action, answered in XML.
//
// Source: Smithy specification, "AWS query protocol".
package awsquery

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/google/uuid"
)

// MaxForm is the largest request that is read, in bytes. It leaves room for a message of SNS's largest size of which
// every byte is percent-encoded.
const MaxForm = 4 << 20

// Error is what a caller sees; Code is the protocol's word, from which SDKs make their error types.
type Error struct {
	Status  int    `xml:"-"` // of HTTP
	Type    string // Sender or Receiver: whose fault it is
	Code    string
	Message string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Sender makes the error of a caller who is wrong.
func Sender(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Type: "Sender", Code: code, Message: fmt.Sprintf(format, args...)}
}

// Metadata stands in every answer.
type Metadata struct {
	RequestID string `xml:"RequestId"`
}

// Action answers one form with a value for encoding/xml. An error other than an [Error] is one of the service's own.
type Action func(form url.Values, meta Metadata) (answer any, err error)

// Service is an http.Handler that serves actions by their names. It is safe for concurrent use if they are.
type Service struct {
	// Namespace is the XML namespace of the error documents.
	Namespace string
	// Version of the API, as it stands in its forms and its namespace.
	Version string
	Actions map[string]Action
	// Served names the actions in words, for whoever asks for another.
	Served string
}

// ServeHTTP serves one call.
func (s Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	meta := Metadata{uuid.NewString()}
	answer, err := s.call(w, r, meta)
	status := http.StatusOK
	if err != nil {
		var known *Error
		if !errors.As(err, &known) {
			known = &Error{Status: http.StatusInternalServerError, Type: "Receiver", Code: "InternalError", Message: err.Error()}
		}
		status = known.Status
		answer = struct {
			XMLName   xml.Name `xml:"ErrorResponse"`
			Namespace string   `xml:"xmlns,attr"`
			Error     *Error   `xml:"Error"`
			Metadata
		}{Namespace: s.Namespace, Error: known, Metadata: meta}
	}
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("X-Amzn-Requestid", meta.RequestID)
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(answer) // the caller is gone
}

func (s Service) call(w http.ResponseWriter, r *http.Request, meta Metadata) (any, error) {
	if r.Method != http.MethodPost {
		return nil, Sender(http.StatusMethodNotAllowed, "InvalidAction", "use POST")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxForm))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, Sender(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the request is larger than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, Sender(http.StatusBadRequest, "MalformedQueryString", "the request is not a form: %v", err)
	}
	name := form.Get("Action")
	if name == "" {
		return nil, Sender(http.StatusBadRequest, "MissingAction", "the form names no Action")
	}
	action, ok := s.Actions[name]
	if !ok {
		return nil, Sender(http.StatusBadRequest, "InvalidAction",
			"Could not find operation %s for version %s: served here are %s", name, s.Version, s.Served)
	}
	return action(form, meta)
}
