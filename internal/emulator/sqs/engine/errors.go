package engine

import (
	"errors"
	"fmt"
)

// Code names an error the way the service model of Amazon SQS names it.
type Code string

// The errors that the engine reports. Source: Amazon SQS API Reference, "Errors" of each action.
const (
	QueueDoesNotExist     Code = "QueueDoesNotExist"
	QueueNameExists       Code = "QueueNameExists"
	QueueDeletedRecently  Code = "QueueDeletedRecently"
	PurgeQueueInProgress  Code = "PurgeQueueInProgress"
	InvalidAttributeName  Code = "InvalidAttributeName"
	InvalidAttributeValue Code = "InvalidAttributeValue"
	InvalidParameterValue Code = "InvalidParameterValue"
	MissingParameter      Code = "MissingParameter"
	ReceiptHandleInvalid  Code = "ReceiptHandleIsInvalid"
	MessageNotInflight    Code = "MessageNotInflight"
	OverLimit             Code = "OverLimit"
	ResourceNotFound      Code = "ResourceNotFoundException"
	UnsupportedOperation  Code = "UnsupportedOperation"
)

// Error is a refusal that the caller caused. Every other error of the engine is a fault of its own.
type Error struct {
	Code    Code
	Message string
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// ErrClosed is reported by every call after Close.
var ErrClosed = errors.New("sqs engine is closed")

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalidValue(value any, parameter, reason string) *Error {
	return refuse(InvalidParameterValue, "Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}
