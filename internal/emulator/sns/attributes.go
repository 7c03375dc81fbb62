package sns

import (
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentworker/internal/emulator/awsquery"
)

// settable tells whether an attribute of a topic can be set here.
// Source: Amazon SNS API Reference, "SetTopicAttributes".
func settable(name string) bool {
	return slices.Contains([]string{"DisplayName", "KmsMasterKeyId", "Policy"}, name)
}

// attributesOf are a topic's attributes. Whoever reads what is kept here counts as one subscriber.
// Source: Amazon SNS API Reference, "GetTopicAttributes".
func (s *Server) attributesOf(arn string) map[string]string {
	attributes := map[string]string{
		"TopicArn": arn, "Owner": s.config.AccountID, "DisplayName": "", "Policy": s.defaultPolicy(arn),
		"SubscriptionsConfirmed": "1", "SubscriptionsPending": "0", "SubscriptionsDeleted": "0",
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(attributes, s.attributes[arn])
	if attributes["KmsMasterKeyId"] == "" {
		delete(attributes, "KmsMasterKeyId")
	}
	return attributes
}

// defaultPolicy lets everything that belongs to the account use the topic.
// Source: Amazon SNS Developer Guide, "Identity and access management in Amazon SNS".
func (s *Server) defaultPolicy(arn string) string {
	return `{"Version":"2008-10-17","Id":"__default_policy_ID","Statement":[{"Sid":"__default_statement_ID","Effect":"Allow",` +
		`"Principal":{"AWS":"*"},"Action":["SNS:GetTopicAttributes","SNS:SetTopicAttributes","SNS:AddPermission","SNS:RemovePermission",` +
		`"SNS:DeleteTopic","SNS:Subscribe","SNS:ListSubscriptionsByTopic","SNS:Publish"],"Resource":"` + arn +
		`","Condition":{"StringEquals":{"AWS:SourceOwner":"` + s.config.AccountID + `"}}}]}`
}

func (s *Server) callGetTopicAttributes(form url.Values, meta awsquery.Metadata) (any, error) {
	arn := form.Get("TopicArn")
	if !s.exists(arn) {
		return nil, awsquery.Sender(http.StatusNotFound, "NotFound", "Topic does not exist")
	}
	type entry struct {
		Key   string `xml:"key"`
		Value string `xml:"value"`
	}
	var entries []entry
	attributes := s.attributesOf(arn)
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		entries = append(entries, entry{name, attributes[name]})
	}
	return struct {
		XMLName   xml.Name          `xml:"GetTopicAttributesResponse"`
		Namespace string            `xml:"xmlns,attr"`
		Entries   []entry           `xml:"GetTopicAttributesResult>Attributes>entry"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, Entries: entries, Metadata: meta}, nil
}

func (s *Server) callSetTopicAttributes(form url.Values, meta awsquery.Metadata) (any, error) {
	arn, name := form.Get("TopicArn"), form.Get("AttributeName")
	switch {
	case !s.exists(arn):
		return nil, awsquery.Sender(http.StatusNotFound, "NotFound", "Topic does not exist")
	case !settable(name):
		return nil, invalid("AttributeName: %s cannot be set here", name)
	case name == "Policy" && !strings.HasPrefix(strings.TrimSpace(form.Get("AttributeValue")), "{"):
		return nil, invalid("Policy Error: null")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attributes[arn] == nil {
		s.attributes[arn] = map[string]string{}
	}
	s.attributes[arn][name] = form.Get("AttributeValue")
	return struct {
		XMLName   xml.Name          `xml:"SetTopicAttributesResponse"`
		Namespace string            `xml:"xmlns,attr"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, Metadata: meta}, nil
}
