package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/task"
)

// object reads the body as one JSON object; nil: there is no body.
func (c *call) object() ([]task.Member, error) {
	body, err := io.ReadAll(c.Body)
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge("The body must be at most %d bytes long.", over.Limit)
	case err != nil:
		return nil, malformedJSON("The body broke off.")
	case len(body) == 0:
		// Nothing has no type: whatever the header says comes from the client's habit.
		return nil, nil
	}
	if err := c.checkContentType(); err != nil {
		return nil, err
	}
	members, err := task.ParseObject(body)
	if err != nil {
		return nil, malformedJSON("The body " + err.Error() + ".")
	}
	if members == nil {
		members = []task.Member{}
	}
	return members, nil
}

// checkContentType accepts JSON, what says nothing about itself, and, where API Gateway has encoded the
// body, bytes of no particular type: what is in them tells.
func (c *call) checkContentType() error {
	const remedy = `Send JSON in UTF-8 with "Content-Type: application/json".`
	if coding := c.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return notJSON("The body must not be compressed.")
	}
	header := c.Header.Get("Content-Type")
	if header == "" {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(header)
	if err != nil {
		return notJSON("The content type cannot be read. " + remedy)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return notJSON("The character set is not UTF-8. " + remedy)
	}
	switch {
	case mediaType == "application/json", strings.HasSuffix(mediaType, "+json"):
		return nil
	case mediaType == "application/octet-stream" && gatewayEncoded(c.Context()):
		return nil
	}
	return notJSON("The body is not declared as JSON. " + remedy)
}

// query gives the parameters of the query string, each at most once. Names that the call does not know
// are wrong: what they were meant to say would be lost without a word.
func (c *call) query(names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, malformedQuery("The query string is not percent-encoded as application/x-www-form-urlencoded asks for.")
	}
	given := make(map[string]string, len(names))
	var errs task.FieldErrors
	for name, list := range values {
		switch {
		case !utf8.ValidString(name) || slices.ContainsFunc(list, func(v string) bool { return !utf8.ValidString(v) }):
			return nil, malformedQuery("The query string is not UTF-8.")
		case !slices.Contains(names, name):
			errs = append(errs, task.FieldError{Field: name, Problem: notAParameter(names)})
		case len(list) > 1:
			errs = append(errs, task.FieldError{Field: name, Problem: "must be given once in the query string"})
		default:
			given[name] = list[0]
		}
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b task.FieldError) int { return strings.Compare(a.Field, b.Field) })
		return nil, errs
	}
	return given, nil
}

func notAParameter(names []string) string {
	if len(names) == 0 {
		return "must not be in the query string, which this call does not read"
	}
	return "must not be in the query string, which takes " + strings.Join(names, ", ")
}

// onlyMembers keeps the members that the call knows and complains about the others.
func onlyMembers(members []task.Member, names ...string) (known []task.Member, errs task.FieldErrors) {
	for _, m := range members {
		if slices.Contains(names, m.Name) {
			known = append(known, m)
			continue
		}
		errs = append(errs, task.FieldError{
			Field: m.Name, Problem: "must not be given: the body takes " + strings.Join(names, ", "),
		})
	}
	return known, errs
}

func quote(s string) (jsontext.Value, error) {
	text, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		return nil, fmt.Errorf("quote: %w", err)
	}
	return text, nil
}
