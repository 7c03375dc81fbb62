package endpoint

import (
	"bytes"
	"io"
	"net/http"
	"net/url"

	"agentworker/internal/emulator/awsquery"
	"agentworker/internal/emulator/cloudformation"
)

// form hands a posted form to the service whose API has the version that it names, and one that names none to SNS.
func (e *Endpoint) form(w http.ResponseWriter, r *http.Request) {
	// One byte more than the services take: they refuse what is too large in their own words.
	body, err := io.ReadAll(io.LimitReader(r.Body, awsquery.MaxForm+1))
	if err != nil {
		fail(w, http.StatusBadRequest, "com.amazon.coral.service#SerializationException", "The request could not be read: "+err.Error())
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	service := e.config.SNS
	if values, err := url.ParseQuery(string(body)); err == nil && values.Get("Version") == cloudformation.Version {
		service = e.config.CloudFormation
	}
	if service == nil {
		e.nobody(w, r)
		return
	}
	service.ServeHTTP(w, r)
}
