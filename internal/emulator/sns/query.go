package sns

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
)

const (
	namespace = "http://sns.amazonaws.com/doc/2010-03-31/"
	version   = "2010-03-31"
	// maxForm leaves room for a message of the largest size of which every byte is percent-encoded.
	maxForm = 4 << 20
)

// apiError is what a caller sees; Code is the protocol's word, from which SDKs make their error types.
type apiError struct {
	status  int
	Type    string `xml:"Type"`
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func sender(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, Type: "Sender", Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *apiError {
	return sender(http.StatusBadRequest, "InvalidParameter", "Invalid parameter: "+format, args...)
}

type metadata struct {
	RequestID string `xml:"RequestId"`
}

// ServeHTTP serves one call of the query protocol: a form with an Action, answered in XML.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	requestID := uuid.NewString()
	answer, err := s.call(w, r, metadata{requestID})
	status := http.StatusOK
	if err != nil {
		var known *apiError
		if !errors.As(err, &known) {
			known = &apiError{status: http.StatusInternalServerError, Type: "Receiver", Code: "InternalError", Message: err.Error()}
		}
		status = known.status
		answer = struct {
			XMLName   xml.Name  `xml:"ErrorResponse"`
			Namespace string    `xml:"xmlns,attr"`
			Error     *apiError `xml:"Error"`
			metadata
		}{Namespace: namespace, Error: known, metadata: metadata{requestID}}
	}
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(answer) // the caller is gone
}

func (s *Server) call(w http.ResponseWriter, r *http.Request, meta metadata) (answer any, err error) {
	if r.Method != http.MethodPost {
		return nil, sender(http.StatusMethodNotAllowed, "InvalidAction", "use POST")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, sender(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the request is larger than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, sender(http.StatusBadRequest, "MalformedQueryString", "the request is not a form: %v", err)
	}
	switch action := form.Get("Action"); action {
	case "Publish":
		return s.callPublish(form, meta)
	case "CreateTopic":
		return s.callCreateTopic(form, meta)
	case "ListTopics":
		return s.callListTopics(form, meta)
	case "":
		return nil, sender(http.StatusBadRequest, "MissingAction", "the form names no Action")
	default:
		return nil, sender(http.StatusBadRequest, "InvalidAction",
			"Could not find operation %s for version %s: served here are Publish, CreateTopic and ListTopics", action, version)
	}
}

func (s *Server) callCreateTopic(form url.Values, meta metadata) (any, error) {
	arn, err := s.CreateTopic(form.Get("Name"))
	if err != nil {
		return nil, err
	}
	return struct {
		XMLName   xml.Name `xml:"CreateTopicResponse"`
		Namespace string   `xml:"xmlns,attr"`
		ARN       string   `xml:"CreateTopicResult>TopicArn"`
		Metadata  metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, ARN: arn, Metadata: meta}, nil
}

func (s *Server) callListTopics(form url.Values, meta metadata) (any, error) {
	after, err := base64.URLEncoding.DecodeString(form.Get("NextToken"))
	if err != nil {
		return nil, invalid("NextToken")
	}
	arns, next := s.page(string(after))
	type topic struct {
		ARN string `xml:"TopicArn"`
	}
	type result struct {
		Topics []topic `xml:"Topics>member"`
		Next   string  `xml:"NextToken,omitempty"`
	}
	r := result{Next: base64.URLEncoding.EncodeToString([]byte(next))}
	for _, arn := range arns {
		r.Topics = append(r.Topics, topic{arn})
	}
	return struct {
		XMLName   xml.Name `xml:"ListTopicsResponse"`
		Namespace string   `xml:"xmlns,attr"`
		Result    result   `xml:"ListTopicsResult"`
		Metadata  metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, Result: r, Metadata: meta}, nil
}

func (s *Server) callPublish(form url.Values, meta metadata) (any, error) {
	n, err := parsePublish(form)
	if err != nil {
		return nil, err
	}
	if !s.exists(n.TopicARN) {
		if parts := strings.Split(n.TopicARN, ":"); len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" {
			return nil, invalid("TopicArn Reason: %s is not the ARN of a topic", n.TopicARN)
		}
		return nil, sender(http.StatusNotFound, "NotFound", "Topic does not exist")
	}
	id := s.publish(n)
	return struct {
		XMLName   xml.Name `xml:"PublishResponse"`
		Namespace string   `xml:"xmlns,attr"`
		ID        string   `xml:"PublishResult>MessageId"`
		Metadata  metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, ID: id, Metadata: meta}, nil
}
