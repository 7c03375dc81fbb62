package lambda

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
)

// unhandled is what Lambda says of every error that reaches it over the Runtime API, also of one that the handler returned.
const unhandled = "Unhandled"

// Error types of Lambda's own. Source: AWS Lambda Developer Guide, "Building a custom runtime" and "Troubleshoot invocation
// issues"; the wording is what Lambda reports in 2026.
const (
	typeExit         = "Runtime.ExitError"
	typeEntrypoint   = "Runtime.InvalidEntrypoint"
	typeTimeout      = "Sandbox.Timedout"
	typeTooLarge     = "Function.ResponseSizeTooLarge"
	typeInvalidID    = "InvalidRequestID"
	typeInvalidState = "InvalidStateTransition"
)

var (
	errNotDelivered = errors.New("process ended before it took the event")
	errTimeout      = errors.New("timeout")
	errAborted      = errors.New("aborted")
)

// InitError says that a new process never asked for its first event.
type InitError struct {
	// Type is Lambda's error type, for example Runtime.ExitError, or the type that the function reported itself.
	Type string
	// Message says what happened.
	Message string
	// Timeout says that the time for the init ran out; Type is Sandbox.Timedout then.
	Timeout bool

	payload []byte // what the function itself posted
}

// Error describes the failed init.
func (e *InitError) Error() string { return fmt.Sprintf("init failed: %s: %s", e.Type, e.Message) }

// errorObject is Lambda's JSON form of an error.
type errorObject struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func errorPayload(kind, message string) []byte {
	payload, err := json.Marshal(errorObject{Type: kind, Message: message})
	if err != nil { // only invalid UTF-8 can do that
		return []byte(`{"errorType":"Runtime.Unknown","errorMessage":"unknown error"}`)
	}
	return payload
}

func exitPayload(requestID, exit string) []byte {
	return errorPayload(typeExit, fmt.Sprintf("RequestId: %s Error: %s", requestID, exit))
}

func timeoutPayload(requestID string, timeout time.Duration) []byte {
	return errorPayload(typeTimeout, fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", requestID, timeout.Seconds()))
}

func tooLargePayload() []byte {
	return errorPayload(typeTooLarge, fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", MaxResponse))
}
