package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"agentworker/internal/config"
)

const wantedRuntime = "provided.al2023"

func (s State) judgeFunction(e *examination, f *Function) {
	// A function that was idle for long is Inactive until somebody invokes it.
	// Source: AWS Lambda Developer Guide, "Lambda function states".
	e.check(FunctionState, f.Name, f.State != "Failed" && f.State != "Pending" && f.LastUpdate != "Failed",
		"%s: its state is %s, and its last update %s: %s", f.Name, f.State, cmp.Or(f.LastUpdate, "unknown"), cmp.Or(f.Reason, "no reason is given"))
	e.check(Runtime, f.Name, f.Runtime == wantedRuntime, "%s: its runtime is %s; it is built for %s", f.Name, f.Runtime, wantedRuntime)
	if f.ReservedKnown {
		e.check(Reserved, f.Name, f.Reserved == nil || *f.Reserved > 0, "%s: its reserved concurrency is 0: it never runs", f.Name)
	}
	if f.RoleChecked {
		e.check(Role, f.Name, len(f.Denied) == 0, "%s: its role does not allow %s", f.Name, strings.Join(f.Denied, ", "))
	}
	s.judgeEnvironment(e, f)
}

// judgeEnvironment finds what a function would not start with, or where it would work beside the stack.
func (s State) judgeEnvironment(e *examination, f *Function) {
	if f.EnvironmentHidden {
		return
	}
	if f.Undecrypted != "" {
		e.check(Environment, f.Name, false, "%s: its environment cannot be decrypted (%s): is its KMS key there, and enabled?", f.Name, f.Undecrypted)
		return
	}
	told := map[string]string{"TABLE_NAME": s.TableName}
	name := func(variable string, q *Queue) {
		if q != nil {
			told[variable] = q.URL
		}
	}
	name("QUEUE_URL", s.Tasks.Queue)
	name("ORDERED_QUEUE_URL", s.Ordered.Queue)
	var err error
	switch f {
	case s.Worker:
		_, err = load[config.Worker](f)
	case s.Submit:
		_, err = load[config.Submit](f)
	default:
		_, err = load[config.DLQAlarm](f)
		told["TOPIC_ARN"] = s.TopicARN
		name("DLQ_URL", s.Tasks.DeadLetter)
		name("ORDERED_DLQ_URL", s.Ordered.DeadLetter)
	}
	if err != nil {
		// It names variables, and never a value.
		e.check(Environment, f.Name, false, "%s: %s", f.Name, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	var wrong []string
	for variable, want := range told {
		if got := f.Environment[variable]; got != want {
			wrong = append(wrong, fmt.Sprintf("%s is %s and not %s", variable, got, want))
		}
	}
	slices.Sort(wrong)
	e.check(Environment, f.Name, len(wrong) == 0, "%s: %s", f.Name, strings.Join(wrong, "; "))
}

// judgeWorker compares how much may run at once with how much the mappings ask for.
func (s State) judgeWorker(e *examination) {
	if s.Worker == nil || !s.Worker.ReservedKnown || !s.Tasks.MappingsRead || !s.Ordered.MappingsRead {
		return
	}
	need := 0
	for _, p := range []Pair{s.Tasks, s.Ordered} {
		for _, m := range s.own(p) {
			need += m.atOnce()
		}
	}
	if n := s.Worker.Reserved; n != nil {
		e.check(Reserved, s.Worker.Name, *n >= need,
			"%s: its reserved concurrency is %d, and the mappings ask for up to %d: what is throttled uses up receives", s.Worker.Name, *n, need)
		return
	}
	if s.Account != nil {
		e.check(Account, s.Worker.Name, s.Account.Unreserved > need,
			"%s: the account lets %d invocations run at once that no function has reserved, and the mappings alone ask for up to %d: nothing is left for submit and dlqalarm",
			s.Worker.Name, s.Account.Unreserved, need)
	}
}

// perPoller is how many invocations a provisioned poller runs at once.
// Source: AWS Lambda Developer Guide, "Configuring provisioned mode for SQS event source mappings".
const perPoller = 10

// atOnce is how many invocations the mapping asks for; 0 when it has no bound.
func (m EventSource) atOnce() int {
	if m.MaximumPollers > 0 {
		return m.MaximumPollers * perPoller
	}
	return m.MaximumConcurrency
}

func plural(n int, words ...string) string {
	word := words[len(words)-1]
	if n == 1 {
		word = words[0]
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", n, word))
}
