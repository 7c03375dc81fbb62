// Package control is the control plane of the local chain: the calls of Lambda, CloudWatch and EventBridge by which
// people and programs read how the chain is set up, and change some of it while it runs. What is told is what runs, and
// what is changed changes how it runs. It makes no new functions, mappings, alarms or rules.
package control

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

// Config says of what there is to tell.
type Config struct {
	// Region and AccountID go into ARNs; empty means us-east-1 and 000000000000.
	Region, AccountID string
	Functions         []*lambda.Function
	// Hidden are variables of the functions' environment that are told nobody.
	Hidden    []string
	Mappings  []*mapping.Managed
	Alarms    []*alarm.Alarm
	Schedules []*alarm.Schedule
	// OldestMessage is how long the oldest message of a queue has been in it, 0 for an empty one; ok is false when there is
	// no such queue. Nil: no queue has that metric.
	OldestMessage func(queueName string) (age time.Duration, ok bool)
}

// Plane answers the calls. It is safe for concurrent use.
type Plane struct {
	config Config
	lambda *http.ServeMux
}

// New makes a control plane.
func New(config Config) *Plane {
	config.Region = cmp.Or(config.Region, "us-east-1")
	config.AccountID = cmp.Or(config.AccountID, "000000000000")
	p := &Plane{config: config}
	p.lambda = p.lambdaRoutes()
	return p
}

// maxBody is more than any call of the control plane sends.
const maxBody = 1 << 20

// fault is an error as AWS's JSON protocols have it.
type fault struct {
	status        int
	code, message string
}

func (f *fault) Error() string { return f.code + ": " + f.message }

func refuse(status int, code, message string) *fault { return &fault{status, code, message} }

// writeJSON answers with JSON, or with the error in the form that SDKs read.
func writeJSON(w http.ResponseWriter, contentType string, status int, answer any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	w.WriteHeader(status)
	if answer != nil {
		_ = json.MarshalWrite(w, answer, json.Deterministic(true)) // the caller is gone
	}
}

func writeFault(w http.ResponseWriter, contentType string, f *fault) {
	w.Header().Set("X-Amzn-Errortype", f.code)
	writeJSON(w, contentType, f.status, struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{f.code, f.message})
}

// function finds a function by name, ARN or account:function:name.
func (p *Plane) function(name string) (*lambda.Function, *fault) {
	i := slices.IndexFunc(p.config.Functions, func(f *lambda.Function) bool {
		return f.Name() == name || f.ARN() == name || p.config.AccountID+":function:"+f.Name() == name
	})
	if i < 0 {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", "Function not found: "+name)
	}
	return p.config.Functions[i], nil
}

// Invoker is the Action's permission: it calls next only when the function lets the service act for the resource, as
// Lambda does.
func Invoker(next alarm.Action, function *lambda.Function, principal, sourceARN string) alarm.Action {
	return func(payload []byte) error {
		if !function.Permits(principal, sourceARN) {
			return refuse(http.StatusForbidden, "AccessDeniedException", principal+" may not invoke "+function.Name()+" for "+sourceARN)
		}
		return next(payload)
	}
}
