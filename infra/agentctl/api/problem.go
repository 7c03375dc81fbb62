package api

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
)

// Problem is what the API answers instead of what it was asked for.
type Problem struct {
	Status int    `json:"status"` // of HTTP
	Code   string `json:"code"`   // stable; "" when not the API but what stands before it has answered
	Detail string `json:"detail"`
	Errors []struct {
		Field   string `json:"field"`
		Problem string `json:"problem"`
	} `json:"errors"` // the fields that are wrong
}

// Error is one line: the code with the fields that are wrong, or with what the API says.
func (p *Problem) Error() string {
	var fields []string
	for _, f := range p.Errors {
		fields = append(fields, f.Field+" "+f.Problem)
	}
	if len(fields) == 0 {
		return p.Name() + ": " + p.Detail
	}
	return p.Name() + ": " + strings.Join(fields, "; ")
}

// Name is the problem's code, or its HTTP status when it has none.
func (p *Problem) Name() string {
	if p.Code != "" {
		return p.Code
	}
	return fmt.Sprintf("HTTP %d", p.Status)
}

// problemOf reads an answer that is none.
func problemOf(response *http.Response, text []byte) *Problem {
	p := &Problem{}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media == "application/problem+json" && json.Unmarshal(text, p) == nil && p.Code != "" {
		p.Status = response.StatusCode
		return p
	}
	// API Gateway answers for itself with a message.
	var gateway struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(text, &gateway) // HTML or nothing has none
	p = &Problem{Status: response.StatusCode, Detail: gateway.Message}
	if p.Detail == "" {
		p.Detail = http.StatusText(p.Status)
	}
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		p.Detail += "; the API lets in AWS credentials that may execute-api:Invoke or, where it was deployed with auth=jwt, a token in AGENTWORKER_TOKEN"
	case http.StatusTooManyRequests:
		p.Detail += "; the API's limit of requests a second is reached"
	}
	return p
}
