package apigateway

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// answer is a function's response in format 2.0, ready to write.
type answer struct {
	status  int
	headers map[string]string
	cookies []string
	body    []byte
}

// parseAnswer reads what a function returned. JSON without a statusCode is the body of a 200 itself; with one it is the
// whole answer. Anything else is the function's fault.
func parseAnswer(payload []byte) (answer, error) {
	if !jsontext.Value(payload).IsValid() {
		return answer{}, fmt.Errorf("the function returned no JSON: %q", clip(payload))
	}
	var returned struct {
		StatusCode      jsontext.Value            `json:"statusCode"`
		Headers         map[string]jsontext.Value `json:"headers"`
		Cookies         []string                  `json:"cookies"`
		Body            string                    `json:"body"`
		IsBase64Encoded bool                      `json:"isBase64Encoded"`
	}
	inferred := answer{
		status:  http.StatusOK,
		headers: map[string]string{"content-type": "application/json"},
		body:    payload,
	}
	if jsontext.Value(payload).Kind() != '{' {
		return inferred, nil
	}
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(payload, &fields); err != nil {
		return answer{}, fmt.Errorf("the function's answer: %w", err)
	}
	if fields["statusCode"] == nil {
		return inferred, nil
	}
	if err := json.Unmarshal(payload, &returned); err != nil {
		return answer{}, fmt.Errorf("the function's answer: %w", err)
	}
	a := answer{headers: map[string]string{}, cookies: returned.Cookies, body: []byte(returned.Body)}
	status, err := strconv.Atoi(scalar(returned.StatusCode))
	if err != nil || status < 200 || status > 599 {
		return answer{}, fmt.Errorf("the function's answer: statusCode %s is not a number from 200 to 599", returned.StatusCode)
	}
	a.status = status
	for name, value := range returned.Headers {
		switch value.Kind() {
		case '"', '0', 't', 'f':
			a.headers[strings.ToLower(name)] = scalar(value)
		case 'n':
		default:
			return answer{}, fmt.Errorf("the function's answer: header %s is %s, and no string", name, value)
		}
	}
	if returned.IsBase64Encoded {
		if a.body, err = base64.StdEncoding.DecodeString(returned.Body); err != nil {
			return answer{}, fmt.Errorf("the function's answer: isBase64Encoded, but the body is not: %w", err)
		}
	}
	// The guide names no default for an answer with a statusCode; this is what clients see.
	if _, ok := a.headers["content-type"]; !ok {
		a.headers["content-type"] = "text/plain;charset=UTF-8"
	}
	return a, nil
}

// scalar is the text of a JSON string, number or boolean.
func scalar(value jsontext.Value) string {
	if value.Kind() == '"' {
		var text string
		if json.Unmarshal(value, &text) == nil {
			return text
		}
	}
	return string(value)
}

func (a answer) write(w http.ResponseWriter) {
	header := w.Header()
	for name, value := range a.headers {
		// The length is that of the body as it is written; a function may have counted its base64 form.
		if name != "content-length" && !slices.Contains(hopByHop, http.CanonicalHeaderKey(name)) {
			header.Set(name, value)
		}
	}
	for _, cookie := range a.cookies {
		header.Add("Set-Cookie", cookie)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client is gone, or the status allows no body
}
