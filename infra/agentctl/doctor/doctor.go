// Package doctor examines a running stack, on AWS or on this machine, and says what in it breaks a promise: what is wrong
// with the number that was seen, which promise suffers, and what mends it.
//
// It only reads, through AWS's own calls, and receives no message: looking changes nothing. [Read] sees, [State.Judge]
// judges what was seen, [Examine] does both.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"agentworker/infra/agentctl/deployment"
)

// Report is what an examination has found.
type Report struct {
	Stack string `json:"stack"`
	// Checks is how many judgements were made.
	Checks int `json:"checks"`
	// Findings are those that came out badly, worst first.
	Findings []Finding `json:"findings"`
	// NotMade are the checks that could not be made.
	NotMade []NotMade `json:"not_made"`
}

// Sound tells whether nothing is wrong and everything could be looked at. What the place does not have, as the chain on
// one machine has no IAM, does not count; what the operator may not read does, since nobody knows then.
func (r Report) Sound() bool {
	return len(r.Findings) == 0 && !slices.ContainsFunc(r.NotMade, func(n NotMade) bool { return n.Why != NotServed })
}

// Finding is one thing that is wrong.
type Finding struct {
	Check    Check    `json:"check"`
	Part     string   `json:"part"` // the queue, function, mapping, alarm, rule, table or topic
	Severity Severity `json:"severity"`
	// Problem is a sentence with what was seen, Promise the one that suffers, Mend what to do.
	Problem string `json:"problem"`
	Promise string `json:"promise"`
	Mend    string `json:"mend"`
}

// NotMade is a check that could not be made.
type NotMade struct {
	What string `json:"what"` // what could not be read
	// Needs is the IAM action that reads it.
	Needs string `json:"needs"`
	Why   Why    `json:"why"`
}

// Why is the reason for which a check could not be made.
type Why string

// The reasons. Only what is not served leaves a stack sound.
const (
	NotPermitted  Why = "not permitted"  // the operator lacks the permission
	NotServed     Why = "not served"     // the place does not know the call
	NotUnderstood Why = "not understood" // the answer cannot be read
	Throttled     Why = "throttled"      // the account makes too many calls just now
)

// Severity says how bad a finding is.
type Severity string

// The severities, worst first.
const (
	Critical Severity = "critical" // tasks are lost, or stand still, now or at the next fault
	Serious  Severity = "serious"  // a promise is broken by the next fault, or a failure goes unseen
	Minor    Severity = "minor"    // a safety net is missing
)

func (s Severity) rank() int { return slices.Index([]Severity{Critical, Serious, Minor}, s) }

// Examine reads a stack and judges it. The error is about what is in the way of looking at all, such as a connection;
// missing permissions are in the report.
func Examine(ctx context.Context, d *deployment.Deployment) (Report, error) {
	state, err := Read(ctx, d)
	if err != nil {
		return Report{}, err
	}
	return state.Judge(time.Now()), nil
}

// Judge says what is wrong with what was seen.
func (s State) Judge(now time.Time) Report {
	e := &examination{local: s.Local, abouts: abouts(), seen: map[subject]bool{}}
	s.judgePresence(e)
	s.judgeNumbers(e)
	for _, p := range []Pair{s.Tasks, s.Ordered} {
		s.judgePair(e, p)
	}
	for _, f := range s.functions() {
		s.judgeFunction(e, f)
	}
	s.judgeWorker(e)
	s.judgeAlarms(e, now)
	s.judgeRule(e)
	s.judgeTable(e)
	s.judgeTopic(e)
	slices.SortStableFunc(e.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Check, b.Check))
	})
	notMade := slices.CompactFunc(slices.SortedStableFunc(slices.Values(s.NotMade), func(a, b NotMade) int {
		return cmp.Or(cmp.Compare(a.Needs, b.Needs), cmp.Compare(a.What, b.What))
	}), func(a, b NotMade) bool { return a == b })
	return Report{Stack: s.Stack, Checks: len(e.seen), Findings: e.findings, NotMade: notMade}
}
