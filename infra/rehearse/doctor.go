package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// doctor has agentctl examine the stack. It is sound but for what MiniStack leaves out of a template: time to live and
// point-in-time recovery; and for a person who would subscribe. MiniStack's CloudWatch does not speak CBOR without a
// library that it does not bring along.
func (r *rehearsal) doctor(ctx context.Context) error {
	var report struct {
		Checks   int `json:"checks"`
		Findings []struct {
			Check   string `json:"check"`
			Problem string `json:"problem"`
		} `json:"findings"`
		NotMade []struct {
			Needs string `json:"needs"`
		} `json:"not_made"`
	}
	err := r.operate(ctx, &report, "doctor")
	if report.Checks < 60 {
		return errors.Join(err, fmt.Errorf("doctor made %d checks, want 60 or more", report.Checks))
	}
	var problems []error
	for _, f := range report.Findings {
		if !slices.Contains([]string{"table-ttl", "table-recovery", "topic-subscribers"}, f.Check) {
			problems = append(problems, fmt.Errorf("doctor finds %s: %s", f.Check, f.Problem))
		}
	}
	for _, n := range report.NotMade {
		if !strings.HasPrefix(n.Needs, "cloudwatch:") {
			problems = append(problems, fmt.Errorf("doctor could not ask for %s", n.Needs))
		}
	}
	return errors.Join(problems...)
}
