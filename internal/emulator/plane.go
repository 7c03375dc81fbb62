package emulator

import (
	"net/http"

	"agentworker/internal/config"
	"agentworker/internal/emulator/alarm"
	"agentworker/internal/emulator/control"
	"agentworker/internal/emulator/lambda"
)

// Who invokes functions. Source: AWS Lambda Developer Guide, "Using resource-based policies in Lambda"; Amazon CloudWatch
// User Guide, "Invoke a Lambda function from an alarm".
const (
	alarmsPrincipal = "lambda.alarms.cloudwatch.amazonaws.com"
	rulesPrincipal  = "events.amazonaws.com"
)

func alarmARN(name string) string {
	return "arn:aws:cloudwatch:" + region + ":" + account + ":alarm:" + name
}

func ruleARN(name string) string { return "arn:aws:events:" + region + ":" + account + ":rule/" + name }

// invoke has an alarm or a rule invoke dlqalarm asynchronously, and lets it.
func (c *Chain) invoke(principal, sourceARN, statement string) (alarm.Action, error) {
	err := c.dlqalarm.AddPermission(lambda.Permission{ID: statement, Principal: principal, SourceARN: sourceARN})
	return control.Invoker(alarm.Invoke(c.async, c.dlqalarm), c.dlqalarm, principal, sourceARN), err
}

// startPlane has the control plane tell of what runs.
func (c *Chain) startPlane(sweep *alarm.Schedule) {
	settings := control.Config{
		Region: region, AccountID: account,
		Functions: []*lambda.Function{c.worker, c.submit, c.dlqalarm}, Mappings: c.mappings, Alarms: c.alarms, Schedules: []*alarm.Schedule{sweep},
	}
	for name := range config.Variables(config.Keys{OpenAI: "any"}) {
		settings.Hidden = append(settings.Hidden, name)
	}
	if c.sqsServer != nil {
		settings.OldestMessage = c.sqsServer.OldestAge
	}
	c.plane.Store(control.New(settings))
}

// whenUp serves a part of the control plane from when there is something to tell of.
func (c *Chain) whenUp(part func(*control.Plane) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if plane := c.plane.Load(); plane != nil {
			part(plane).ServeHTTP(w, r)
			return
		}
		http.Error(w, "the chain is not up yet", http.StatusServiceUnavailable)
	})
}

// serveLambda answers for Lambda. The functions come later than the endpoint that they themselves call.
func (c *Chain) serveLambda(w http.ResponseWriter, r *http.Request) {
	h, plane := c.lambdaAPI.Load(), c.plane.Load()
	switch {
	case h == nil:
		http.Error(w, "the functions are not up yet", http.StatusServiceUnavailable)
	case plane == nil:
		h.ServeHTTP(w, r)
	default:
		plane.Lambda(h).ServeHTTP(w, r)
	}
}
