package sqs

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"agentworker/internal/emulator/sqs/engine"
)

// Codes that only the protocol layer reports.
const (
	emptyBatch       engine.Code = "EmptyBatchRequest"
	tooManyEntries   engine.Code = "TooManyEntriesInBatchRequest"
	idsNotDistinct   engine.Code = "BatchEntryIdsNotDistinct"
	invalidEntryID   engine.Code = "InvalidBatchEntryId"
	batchTooLong     engine.Code = "BatchRequestTooLong"
	invalidContents  engine.Code = "InvalidMessageContents"
	invalidAddress   engine.Code = "InvalidAddress"
	serializationBad engine.Code = "SerializationException"
)

// wireError is how one error looks on the wire.
type wireError struct {
	shape  string // __type
	query  string // code of the older query protocol, in x-amzn-query-error; SDKs show this one
	status int
}

// wire gives each code its shape. Source: the service model of Amazon SQS (traits awsQueryError) and
// the AWS JSON 1.0 protocol with query compatibility.
func wire(code engine.Code) *wireError {
	const (
		model  = "com.amazonaws.sqs#"
		coral  = "com.amazon.coral.service#"
		prefix = "AWS.SimpleQueueService."
	)
	switch code {
	case engine.QueueDoesNotExist:
		return &wireError{model + string(code), prefix + "NonExistentQueue", http.StatusBadRequest}
	case engine.QueueNameExists:
		return &wireError{model + string(code), "QueueAlreadyExists", http.StatusBadRequest}
	case engine.InvalidParameterValue:
		return &wireError{coral + "InvalidParameterValueException", string(code), http.StatusBadRequest}
	case engine.MissingParameter:
		return &wireError{coral + "MissingRequiredParameterException", string(code), http.StatusBadRequest}
	case serializationBad:
		return &wireError{coral + string(code), "", http.StatusBadRequest}
	case engine.ResourceNotFound:
		return &wireError{model + string(code), string(code), http.StatusNotFound}
	case engine.QueueDeletedRecently, engine.PurgeQueueInProgress, engine.MessageNotInflight,
		engine.UnsupportedOperation, emptyBatch, tooManyEntries, idsNotDistinct, invalidEntryID, batchTooLong:
		return &wireError{model + string(code), prefix + string(code), http.StatusBadRequest}
	}
	return &wireError{model + string(code), string(code), http.StatusBadRequest}
}

func refuse(code engine.Code, format string, args ...any) *engine.Error {
	return &engine.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalidValue(value any, parameter, reason string) *engine.Error {
	return refuse(engine.InvalidParameterValue, "Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

func missing(parameter string) *engine.Error {
	return refuse(engine.MissingParameter, "The request must contain the parameter %s.", parameter)
}

type errorBody struct {
	Type    string `json:"__type"`
	Message string `json:"message"`
}

// refuse answers an action's error: the caller's own with its code, any other as a fault of ours.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	if r.Context().Err() != nil {
		return // nobody is there to read it
	}
	var refused *engine.Error
	if errors.As(err, &refused) {
		s.fail(w, wire(refused.Code), refused.Message)
		return
	}
	s.log.ErrorContext(r.Context(), "sqs request failed", "action", name, "error", err)
	s.fail(w, &wireError{"com.amazon.coral.service#InternalFailure", "InternalFailure", http.StatusInternalServerError}, err.Error())
}

func (s *Server) fail(w http.ResponseWriter, as *wireError, message string) {
	if as.query != "" {
		fault := ";Sender"
		if as.status >= http.StatusInternalServerError {
			fault = ";Receiver"
		}
		w.Header().Set("X-Amzn-Query-Error", as.query+fault)
	}
	s.send(w, as.status, errorBody{as.shape, strings.ToValidUTF8(message, "\uFFFD")}) // it may quote what the client sent
}

func (s *Server) send(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	body, err := json.Marshal(answer)
	if err != nil {
		s.log.Error("encode sqs answer", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		s.log.Debug("write sqs answer", "error", err)
	}
}
