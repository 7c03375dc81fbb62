package endpoint

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"agentworker/internal/emulator/awsquery"
	"agentworker/internal/emulator/cloudformation"
	"agentworker/internal/emulator/sns"
)

// form hands a posted form to the service whose API has the version that it names, and one that names none to SNS. The
// caller of another service hears what is served: SNS would speak of its own calls and version.
func (e *Endpoint) form(w http.ResponseWriter, r *http.Request) {
	// One byte more than the services take: they refuse what is too large in their own words.
	body, err := io.ReadAll(io.LimitReader(r.Body, awsquery.MaxForm+1))
	if err != nil {
		fail(w, http.StatusBadRequest, "com.amazon.coral.service#SerializationException", "The request could not be read: "+err.Error())
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	service := e.config.SNS
	if values, err := url.ParseQuery(string(body)); err == nil {
		switch version := values.Get("Version"); version {
		case "", sns.Version:
		case cloudformation.Version:
			service = e.config.CloudFormation
		default:
			service = awsquery.Service{Version: version, Served: strings.Join(e.served(), "; ")}
		}
	}
	if service == nil {
		e.nobody(w, r)
		return
	}
	service.ServeHTTP(w, r)
}
