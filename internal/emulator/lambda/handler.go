package lambda

import (
	"encoding/base64"
	"encoding/json" // for Valid only: Lambda checks the syntax of an event and nothing else
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// Handler answers Lambda's Invoke API, POST /2015-03-31/functions/{name}/invocations, for a set of functions. The name may
// be a function's name, its ARN or account:function:name; the only version is $LATEST. Invocation types are
// RequestResponse, Event and DryRun; LogType Tail is honoured. Signatures are not checked.
//
// Source: AWS Lambda API Reference, "Invoke".
type Handler struct {
	functions map[string]*Function
	async     *Async
	mux       *http.ServeMux
}

// NewHandler makes the API for the functions; async takes the invocations of type Event and is the caller's to close.
func NewHandler(async *Async, functions ...*Function) *Handler {
	h := &Handler{functions: map[string]*Function{}, async: async, mux: http.NewServeMux()}
	for _, f := range functions {
		h.functions[f.Name()] = f
	}
	h.mux.HandleFunc("POST /2015-03-31/functions/{name}/invocations", h.invoke)
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern == "" {
		fail(w, http.StatusNotFound, "UnknownOperationException", "User", "", "this endpoint knows POST /2015-03-31/functions/{name}/invocations")
		return
	}
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) invoke(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	function := h.find(w, r)
	if function == nil {
		return
	}
	invocationType := r.Header.Get("X-Amz-Invocation-Type")
	limit := MaxPayload
	if invocationType == "Event" {
		limit = MaxAsyncPayload
	}
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		fail(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", "User", "",
			fmt.Sprintf("Request must be smaller than %d bytes for the InvokeFunction operation", limit))
		return
	case err != nil:
		fail(w, http.StatusBadRequest, "InvalidRequestContentException", "User", "", "Could not read the request body")
		return
	case len(payload) > 0 && !json.Valid(payload):
		fail(w, http.StatusBadRequest, "InvalidRequestContentException", "User", "", "Could not parse request body into json")
		return
	}
	switch invocationType {
	case "", "RequestResponse":
		h.respond(w, r, function, payload)
	case "Event":
		h.accept(w, function, payload)
	case "DryRun":
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, http.StatusBadRequest, "InvalidParameterValueException", "User", "",
			fmt.Sprintf("Value %q at 'invocationType' failed to satisfy constraint: Member must satisfy enum value set: [RequestResponse, Event, DryRun]", invocationType))
	}
}

// find resolves name, ARN or partial ARN and the qualifier.
func (h *Handler) find(w http.ResponseWriter, r *http.Request) *Function {
	name, qualifier := r.PathValue("name"), r.URL.Query().Get("Qualifier")
	if _, after, found := strings.Cut(name, "function:"); found {
		name = after
	}
	if before, after, found := strings.Cut(name, ":"); found {
		name, qualifier = before, after
	}
	function := h.functions[name]
	if function == nil || (qualifier != "" && qualifier != "$LATEST") {
		missing := name
		if function != nil {
			missing = function.ARN() + ":" + qualifier
		}
		fail(w, http.StatusNotFound, "ResourceNotFoundException", "User", "", "Function not found: "+missing)
		return nil
	}
	return function
}

func (h *Handler) respond(w http.ResponseWriter, r *http.Request, function *Function, payload []byte) {
	ctx := r.Context()
	if trace := r.Header.Get("X-Amzn-Trace-Id"); trace != "" {
		ctx = WithTrace(ctx, trace)
	}
	result, err := function.Invoke(ctx, payload)
	switch {
	case errors.Is(err, ErrThrottled):
		fail(w, http.StatusTooManyRequests, "TooManyRequestsException", "User", "ReservedFunctionConcurrentInvocationLimitExceeded", "Rate Exceeded.")
		return
	case err != nil:
		fail(w, http.StatusInternalServerError, "ServiceException", "Service", "", err.Error())
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Amzn-Requestid", result.RequestID)
	header.Set("X-Amz-Executed-Version", "$LATEST")
	if result.FunctionError != "" {
		header.Set("X-Amz-Function-Error", result.FunctionError)
	}
	if r.Header.Get("X-Amz-Log-Type") == "Tail" {
		header.Set("X-Amz-Log-Result", base64.StdEncoding.EncodeToString(result.LogTail))
	}
	_, _ = w.Write(result.Payload)
}

func (h *Handler) accept(w http.ResponseWriter, function *Function, payload []byte) {
	requestID, err := h.async.Send(function, payload)
	if err != nil {
		fail(w, http.StatusInternalServerError, "ServiceException", "Service", "", err.Error())
		return
	}
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(http.StatusAccepted)
}

// fail writes an error the way that the SDKs read it: type in a header, message in the body.
func fail(w http.ResponseWriter, status int, kind, fault, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", kind)
	w.WriteHeader(status)
	writeJSON(w, struct {
		Reason  string `json:"Reason,omitempty"`
		Type    string `json:"Type"`
		Message string `json:"message"`
	}{reason, fault, message})
}
