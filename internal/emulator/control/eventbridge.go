package control

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentworker/internal/emulator/alarm"
)

// EventBridgeTarget is how X-Amz-Target begins in a request for EventBridge.
const EventBridgeTarget = "AWSEvents."

// EventBridge answers EventBridge's calls about the rules with a schedule.
func (p *Plane) EventBridge() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const contentType = "application/x-amz-json-1.1"
		answer, bad := p.eventBridge(strings.TrimPrefix(r.Header.Get("X-Amz-Target"), EventBridgeTarget), r)
		if bad != nil {
			writeFault(w, contentType, bad)
			return
		}
		writeJSON(w, contentType, http.StatusOK, answer)
	})
}

// eventBridge makes one call. Source: Amazon EventBridge API Reference, the pages of the calls.
func (p *Plane) eventBridge(name string, r *http.Request) (any, *fault) {
	if !slices.Contains([]string{"DescribeRule", "EnableRule", "DisableRule", "ListTargetsByRule"}, name) {
		return nil, refuse(http.StatusBadRequest, "UnknownOperationException", "There is no "+name+
			" here: served are DescribeRule, EnableRule, DisableRule and ListTargetsByRule")
	}
	var in struct {
		Name string // of a rule
		Rule string // the same, in the call for its targets
	}
	if bad := read(r, &in); bad != nil {
		return nil, bad
	}
	var s *alarm.Schedule
	for _, schedule := range p.config.Schedules {
		if rule := schedule.Settings().Rule; rule == in.Name || rule == in.Rule {
			s = schedule
		}
	}
	if s == nil {
		return nil, refuse(http.StatusBadRequest, "ResourceNotFoundException", "Rule "+in.Name+in.Rule+" does not exist on EventBus default.")
	}
	settings := s.Settings()
	switch name {
	case "EnableRule", "DisableRule":
		s.Enable(name == "EnableRule")
		return struct{}{}, nil
	case "ListTargetsByRule":
		targets := []target{}
		for i, arn := range settings.ActionARNs {
			targets = append(targets, target{fmt.Sprintf("Target%d", i), arn})
		}
		return struct{ Targets []target }{targets}, nil
	default: // DescribeRule
		state := "ENABLED"
		if !s.Enabled() {
			state = "DISABLED"
		}
		return ruleView{
			settings.Rule, s.ARN(), state, rate(settings.Interval), "default",
		}, nil
	}
}

type ruleView struct {
	Name                                    string
	ARN                                     string `json:"Arn"`
	State, ScheduleExpression, EventBusName string
}

type target struct {
	ID  string `json:"Id"`
	ARN string `json:"Arn"`
}

// rate is an interval as a rate expression. What is no whole number of minutes is nothing that EventBridge has.
func rate(d time.Duration) string {
	if minutes := int(d / time.Minute); minutes != 1 {
		return fmt.Sprintf("rate(%d minutes)", minutes)
	}
	return "rate(1 minute)"
}
