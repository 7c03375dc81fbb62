// Package endpoint is the one address at which the local chain answers for AWS: it tells from a request which service it
// is for and hands it on. SDKs and the CLI need no more than this endpoint's URL.
package endpoint

import (
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"

	"agentworker/internal/emulator/cloudformation"
	"agentworker/internal/emulator/control"
	"agentworker/internal/emulator/sns"
)

// Paths of what is no AWS service.
const (
	NotificationsPath = "/_local/notifications"
	HealthPath        = "/_local/health"
)

// lambdaPath is how the paths of Lambda's calls begin: with the date of their version.
var lambdaPath = regexp.MustCompile(`^/20\d\d-\d\d-\d\d/(functions|event-source-mappings|account-settings)(/|$)`)

// Config says who answers. What is nil is not served.
type Config struct {
	SQS, Lambda, SNS, CloudFormation, CloudWatch, EventBridge http.Handler
	// Notifications answers GET at NotificationsPath.
	Notifications http.Handler
	// DynamoDB is where DynamoDB and its streams are.
	DynamoDB *url.URL
	// Logger hears of refused requests and of a DynamoDB that does not answer. Nil: slog.Default.
	Logger *slog.Logger
}

// Endpoint is an http.Handler, safe for concurrent use.
//
// It serves programs on this machine only, see LocalOnly: the local services check no signature, so that any page in a
// browser could otherwise drive them.
type Endpoint struct {
	config    Config
	guarded   http.Handler
	transport *http.Transport
	dynamodb  *httputil.ReverseProxy // nil when not served
}

// New makes the endpoint.
func New(config Config) *Endpoint {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	e := &Endpoint{config: config}
	e.guarded = LocalOnly(http.HandlerFunc(e.route), config.Logger)
	if config.DynamoDB != nil {
		e.transport = newTransport()
		e.dynamodb = newProxy(config.DynamoDB, e.transport, config.Logger)
	}
	return e
}

// Close drops the idle connections to DynamoDB.
func (e *Endpoint) Close() error {
	if e.transport != nil {
		e.transport.CloseIdleConnections()
	}
	return nil
}

// ServeHTTP serves one request. JSON services are told by the prefix of X-Amz-Target, Lambda by its path, SNS and
// CloudFormation by their forms.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.guarded.ServeHTTP(w, r) }

func (e *Endpoint) route(w http.ResponseWriter, r *http.Request) {
	if handler := e.handler(r); handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	e.nobody(w, r)
}

func (e *Endpoint) nobody(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, "UnknownOperationException",
		"Nothing is served here for "+r.Method+" "+r.URL.Path+". Served are: "+strings.Join(e.served(), "; ")+".")
}

func (e *Endpoint) handler(r *http.Request) http.Handler {
	target := r.Header.Get("X-Amz-Target")
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case strings.HasPrefix(target, "AmazonSQS."):
		return e.config.SQS
	case strings.HasPrefix(target, "DynamoDB_20120810."), strings.HasPrefix(target, "DynamoDBStreams_20120810."):
		if e.dynamodb == nil {
			return nil
		}
		return whole(e.dynamodb)
	case strings.HasPrefix(target, control.CloudWatchTarget), target == "" && strings.HasPrefix(r.URL.Path, control.CloudWatchPath):
		return e.config.CloudWatch
	case strings.HasPrefix(target, control.EventBridgeTarget):
		return e.config.EventBridge
	case target != "":
		return nil
	case lambdaPath.MatchString(r.URL.Path):
		return e.config.Lambda
	case r.URL.Path == NotificationsPath && read:
		return e.config.Notifications
	case r.URL.Path == HealthPath && read:
		return http.HandlerFunc(e.health)
	case r.Method == http.MethodPost && mediaType == "application/x-www-form-urlencoded":
		return http.HandlerFunc(e.form)
	}
	return nil
}

// served says in words what the configuration has.
func (e *Endpoint) served() []string {
	var served []string
	for _, s := range []struct {
		there bool
		words string
	}{
		{e.config.SQS != nil, "SQS (X-Amz-Target: AmazonSQS.…, as SDKs and the CLI send it since November 2023)"},
		{e.dynamodb != nil, "DynamoDB and its streams (X-Amz-Target: DynamoDB_20120810.… and DynamoDBStreams_20120810.…)"},
		{e.config.Lambda != nil, "Lambda (/2015-03-31/functions/… and its other paths)"},
		{e.config.CloudWatch != nil, "CloudWatch (" + control.CloudWatchPath + "…, X-Amz-Target: " + control.CloudWatchTarget + "…)"},
		{e.config.EventBridge != nil, "EventBridge (X-Amz-Target: " + control.EventBridgeTarget + "…)"},
		{e.config.SNS != nil, "SNS (a posted form of Version " + sns.Version + ")"},
		{e.config.CloudFormation != nil, "CloudFormation (a posted form of Version " + cloudformation.Version + ")"},
		{e.config.Notifications != nil, "GET " + NotificationsPath},
		{true, "GET " + HealthPath},
	} {
		if s.there {
			served = append(served, s.words)
		}
	}
	return served
}

// fail answers in the form of the AWS JSON protocol, which SDKs turn into an error with code and message.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amzn-Errortype", code)
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, struct { // the client is gone
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{code, message})
}
