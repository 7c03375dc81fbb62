package sns

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"

	"agentworker/internal/emulator/awsquery"
)

const (
	namespace = "http://sns.amazonaws.com/doc/2010-03-31/"
	// Version of the API, as its forms name it.
	Version = "2010-03-31"
)

func invalid(format string, args ...any) *awsquery.Error {
	return awsquery.Sender(http.StatusBadRequest, "InvalidParameter", "Invalid parameter: "+format, args...)
}

// ServeHTTP serves one call of the query protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.protocol.ServeHTTP(w, r) }

func (s *Server) service() awsquery.Service {
	return awsquery.Service{
		Namespace: namespace, Version: Version,
		Actions: map[string]awsquery.Action{
			"Publish": s.callPublish, "CreateTopic": s.callCreateTopic, "ListTopics": s.callListTopics,
			"GetTopicAttributes": s.callGetTopicAttributes, "SetTopicAttributes": s.callSetTopicAttributes,
		},
		Served: "Publish, CreateTopic, ListTopics, GetTopicAttributes and SetTopicAttributes",
	}
}

func (s *Server) callCreateTopic(form url.Values, meta awsquery.Metadata) (any, error) {
	arn, err := s.CreateTopic(form.Get("Name"))
	if err != nil {
		return nil, err
	}
	return struct {
		XMLName   xml.Name          `xml:"CreateTopicResponse"`
		Namespace string            `xml:"xmlns,attr"`
		ARN       string            `xml:"CreateTopicResult>TopicArn"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, ARN: arn, Metadata: meta}, nil
}

func (s *Server) callListTopics(form url.Values, meta awsquery.Metadata) (any, error) {
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
		XMLName   xml.Name          `xml:"ListTopicsResponse"`
		Namespace string            `xml:"xmlns,attr"`
		Result    result            `xml:"ListTopicsResult"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, Result: r, Metadata: meta}, nil
}

func (s *Server) callPublish(form url.Values, meta awsquery.Metadata) (any, error) {
	n, err := parsePublish(form)
	if err != nil {
		return nil, err
	}
	if !s.exists(n.TopicARN) {
		if parts := strings.Split(n.TopicARN, ":"); len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" {
			return nil, invalid("TopicArn Reason: %s is not the ARN of a topic", n.TopicARN)
		}
		return nil, awsquery.Sender(http.StatusNotFound, "NotFound", "Topic does not exist")
	}
	id := s.publish(n)
	return struct {
		XMLName   xml.Name          `xml:"PublishResponse"`
		Namespace string            `xml:"xmlns,attr"`
		ID        string            `xml:"PublishResult>MessageId"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, ID: id, Metadata: meta}, nil
}
