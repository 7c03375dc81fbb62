package sns

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/emulator/awsquery"
)

const (
	// maxMessage is the default quota of a topic, in bytes, for message and attributes together.
	maxMessage = 256 << 10
	maxSubject = 100 // characters
)

// parsePublish reads and checks the parameters of Publish; the topic's existence is not its matter.
func parsePublish(form url.Values) (Notification, error) {
	n := Notification{TopicARN: form.Get("TopicArn"), Subject: form.Get("Subject"), Message: form.Get("Message")}
	if n.TopicARN == "" {
		n.TopicARN = form.Get("TargetArn")
	}
	attributes, size, err := parseAttributes(form)
	switch {
	case form.Get("PhoneNumber") != "":
		return n, invalid("PhoneNumber Reason: text messages are not served here")
	case n.TopicARN == "":
		return n, invalid("TopicArn or TargetArn Reason: no value for required parameter")
	case n.Message == "":
		return n, invalid("Empty message")
	case !utf8.ValidString(n.Message):
		return n, invalid("Message Reason: it is not UTF-8")
	case form.Has("Subject") && !validSubject(n.Subject):
		return n, invalid("Subject")
	case err != nil:
		return n, err
	case len(n.Message)+size > maxMessage:
		return n, invalid("Message too long")
	}
	n.MessageAttributes = attributes
	switch structure := form.Get("MessageStructure"); structure {
	case "":
	case "json":
		if n.Message, err = defaultMessage(n.Message); err != nil {
			return n, err
		}
	default:
		return n, invalid("Message Structure - %s", structure)
	}
	return n, nil
}

// validSubject holds a subject to UTF-8 of 1 to 100 characters without line breaks and control characters.
func validSubject(subject string) bool {
	return subject != "" && utf8.ValidString(subject) && utf8.RuneCountInString(subject) <= maxSubject &&
		!strings.ContainsFunc(subject, unicode.IsControl)
}

// defaultMessage is the text that a message of structure json has for protocols without one of their own.
func defaultMessage(message string) (string, error) {
	var texts map[string]jsontext.Value
	if err := json.Unmarshal([]byte(message), &texts); err != nil {
		return "", invalid("Message Structure - JSON message body failed to parse")
	}
	var text string
	if texts["default"].Kind() != '"' || json.Unmarshal(texts["default"], &text) != nil {
		return "", invalid("Message Structure - No default entry in JSON message body")
	}
	return text, nil
}

var (
	attributeType = regexp.MustCompile(`^(String|String\.Array|Number|Binary)$`)
	number        = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
)

// parseAttributes reads the numbered entries and returns what they add to the message's size: names, types and values.
func parseAttributes(form url.Values) (attributes map[string]Attribute, size int, err error) {
	for i := 1; ; i++ {
		prefix := fmt.Sprintf("MessageAttributes.entry.%d.", i)
		if !form.Has(prefix + "Name") {
			return attributes, size, nil
		}
		name := form.Get(prefix + "Name")
		a := Attribute{Type: form.Get(prefix + "Value.DataType"), Value: form.Get(prefix + "Value.StringValue")}
		length := len(a.Value)
		if a.Type == "Binary" {
			a.Value = form.Get(prefix + "Value.BinaryValue")
			plain, err := base64.StdEncoding.DecodeString(a.Value)
			if err != nil {
				return nil, 0, badAttribute(name, "has a BinaryValue that is not base64")
			}
			length = len(plain)
		}
		_, twice := attributes[name]
		switch {
		case name == "" || twice:
			return nil, 0, badAttribute(name, "has no name, or one that is there twice")
		case !attributeType.MatchString(a.Type):
			return nil, 0, badAttribute(name, "has an invalid message attribute type")
		case length == 0:
			return nil, 0, badAttribute(name, "must contain non-empty message attribute value for message attribute type '"+a.Type+"'")
		case a.Type == "Number" && !number.MatchString(a.Value):
			return nil, 0, badAttribute(name, "has a value that is no number")
		case !utf8.ValidString(a.Value):
			return nil, 0, badAttribute(name, "has a value that is not UTF-8")
		}
		if attributes == nil {
			attributes = map[string]Attribute{}
		}
		attributes[name] = a
		size += len(name) + len(a.Type) + length
	}
}

func badAttribute(name, problem string) *awsquery.Error {
	return awsquery.Sender(http.StatusBadRequest, "ParameterValueInvalid", "The message attribute '%s' %s.", name, problem)
}
