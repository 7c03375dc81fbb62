package doctor

import (
	"fmt"

	"agentworker/internal/topology"
)

// Check is the name of one kind of check, stable for programs.
type Check string

// The checks. Those that have a topology rule of the same name are judged by it.
const (
	Presence        Check = "presence"
	Environment     Check = "environment"
	Redrive         Check = "redrive-policy"
	RedriveAllow    Check = "redrive-allow-policy"
	Encryption      Check = "encryption"
	TLS             Check = "tls-only"
	DeadLetters     Check = "dead-letters"
	MessageAge      Check = "message-age"
	Mapping         Check = "mapping"
	Consumer        Check = "other-consumer"
	Filter          Check = "mapping-filter"
	FunctionState   Check = "function-state"
	Runtime         Check = "function-runtime"
	Reserved        Check = "reserved-concurrency"
	Account         Check = "account-concurrency"
	Role            Check = "role"
	AlarmMissing    Check = "alarm-missing"
	AlarmActions    Check = "alarm-actions"
	AlarmState      Check = "alarm-state"
	AlarmPermission Check = "alarm-permission"
	Schedule        Check = "schedule"
	TTL             Check = "table-ttl"
	Recovery        Check = "table-recovery"
	Protection      Check = "table-protection"
	TopicPolicy     Check = "topic-policy"
	TopicKey        Check = "topic-key"
	Subscribers     Check = "topic-subscribers"
)

// The promises, in the words of the README.
const (
	nothingLost     = "nothing accepted is lost"
	takesEffectOnce = "each task takes effect once"
	batchMates      = "one bad record costs its batch mates nothing"
	orderKept       = "order is kept where it is asked for"
	explainsItself  = "a failure explains itself"
	endsVisibly     = "every task ends visibly"
	costsTheSame    = "a task costs the same at turn 1,000 as at turn 1"
	keptPrivate     = "what people ask stays between them and the agent"
)

// about is what is true of all findings of a check.
type about struct {
	severity Severity
	promise  string
	mend     string // "": only as below
	// deed says that it is nothing of how the stack is set up: that cannot be put back as a whole.
	deed bool
	// lasts says that make run with a DATA_DIR finds it again as it was.
	lasts bool
	// settings are those of the CDK app that set it; "": none does, it can only have been changed by hand.
	settings string
}

func setup(severity Severity, promise, mend, settings string) about {
	return about{severity: severity, promise: promise, mend: mend, settings: settings}
}

func lasting(a about) about {
	a.lasts = true
	return a
}

func deed(severity Severity, promise, mend string) about {
	return about{severity: severity, promise: promise, mend: mend, deed: true}
}

// How what was changed by hand is put back as a whole. A plain deployment compares templates, and sees nothing to do.
// Source: AWS CloudFormation User Guide, "Using drift-aware change sets".
const (
	revert  = "a change set with --deployment-mode REVERT_DRIFT, since a plain deployment does not see what was changed by hand"
	restart = "start make run again"
)

// how says what mends a finding: on one machine or on AWS.
func (a about) how(local bool) string {
	whole := revert
	switch {
	case a.deed, local && a.lasts:
		return a.mend
	case local:
		whole = restart
	case a.settings != "":
		whole = "the CDK app's " + a.settings + "; or, if that is right already, " + revert
	}
	if a.mend == "" {
		return whole
	}
	return a.mend + "; or " + whole
}

// abouts is a table, not state: it is made anew for each examination.
func abouts() map[Check]about {
	const (
		queue   = "aws sqs set-queue-attributes --attributes "
		mapping = "aws lambda update-event-source-mapping "
		// A setting that is not named has its default, and the stage too.
		deploy = " beside all of the stack's settings, in make deploy CDKFLAGS='-c stage=… …'"
	)
	return map[Check]about{
		Check(topology.RuleVisibility):     setup(Serious, takesEffectOnce, queue+"VisibilityTimeout=…", "visibilitySeconds, which follows workerTimeoutSeconds and batchingWindowSeconds when it is left out"),
		Check(topology.RuleReceiveCount):   setup(Serious, nothingLost, queue+"RedrivePolicy=…", "maxReceiveCount, with retries below it by two or more"),
		Check(topology.RuleDeadLetterType): setup(Critical, orderKept, "", ""),
		Check(topology.RuleRetention):      setup(Critical, nothingLost, queue+"MessageRetentionPeriod=…", "queueRetentionDays and deadLetterRetentionDays"),
		Check(topology.RulePartialBatch):   setup(Critical, nothingLost+"; "+batchMates, mapping+"--function-response-types ReportBatchItemFailures, with REPORT_BATCH_ITEM_FAILURES=true at the worker", ""),
		Check(topology.RuleConcurrency):    setup(Serious, nothingLost, mapping+"--scaling-config MaximumConcurrency=…", "concurrency"),
		Check(topology.RuleBatch):          setup(Serious, orderKept, mapping+"--batch-size …", "batchSize, batchingWindowSeconds and orderedBatchSize"),
		Check(topology.RuleTimeout):        setup(Serious, endsVisibly, "aws lambda update-function-configuration --timeout …", "workerTimeoutSeconds"),
		Check(topology.RuleRecords):        setup(Serious, takesEffectOnce, "", "recordRetentionDays"),
		Check(topology.RuleSweep):          setup(Minor, explainsItself, "aws events put-rule --schedule-expression …", ""),
		Check(topology.RuleAlarmPeriod):    setup(Minor, explainsItself, "aws cloudwatch put-metric-alarm --period 60 …", ""),
		Check(topology.RuleRange):          setup(Serious, endsVisibly, "", ""),

		Presence:        setup(Critical, endsVisibly, "", ""),
		Environment:     setup(Critical, nothingLost, "aws lambda update-function-configuration --environment …", ""),
		Redrive:         setup(Critical, endsVisibly, queue+"RedrivePolicy=…, to the stack's own dead-letter queue; of a dead-letter queue '{\"RedrivePolicy\":\"\"}', which takes it away", ""),
		RedriveAllow:    setup(Serious, endsVisibly, queue+"RedriveAllowPolicy=…, byQueue and with the queue's ARN", ""),
		Encryption:      setup(Serious, keptPrivate, queue+"SqsManagedSseEnabled=true", ""),
		TLS:             setup(Minor, keptPrivate, "a policy that denies everything where aws:SecureTransport is false", ""),
		DeadLetters:     deed(Serious, endsVisibly, "agentctl dlq ls says why they failed; when that is mended: agentctl dlq redrive"),
		MessageAge:      deed(Critical, endsVisibly, "the README says under the queue's age alarm where to look: throttles, errors of the worker, a dependency that is down"),
		Mapping:         setup(Critical, endsVisibly, mapping+"--enabled, or create-event-source-mapping where there is none", ""),
		Consumer:        deed(Critical, nothingLost, "aws lambda delete-event-source-mapping, of the one that is not the stack's"),
		Filter:          setup(Critical, nothingLost, mapping+"--filter-criteria '{}'", ""),
		FunctionState:   deed(Critical, endsVisibly, "aws lambda get-function-configuration says more of the reason"),
		Runtime:         setup(Minor, endsVisibly, "aws lambda update-function-configuration --runtime "+wantedRuntime, ""),
		Reserved:        setup(Critical, endsVisibly, "aws lambda delete-function-concurrency, or put-function-concurrency with what the mappings ask for", ""),
		Account:         deed(Serious, nothingLost, "a smaller concurrency"+deploy+", or ask AWS for a higher quota of concurrent executions"),
		Role:            setup(Critical, endsVisibly, "give the role what it lacks", ""),
		AlarmMissing:    setup(Serious, explainsItself, "", ""),
		AlarmActions:    setup(Serious, explainsItself, "aws cloudwatch enable-alarm-actions, or put-metric-alarm with --alarm-actions", ""),
		AlarmState:      deed(Serious, explainsItself, "the README says under the alarm's name what to do"),
		AlarmPermission: setup(Serious, explainsItself, "aws lambda add-permission --action "+invokeAction+" --principal … --source-arn …", ""),
		Schedule:        setup(Serious, explainsItself, "aws events enable-rule, put-targets, or aws lambda add-permission", ""),
		TTL:             lasting(setup(Minor, costsTheSame, "aws dynamodb update-time-to-live with "+ttlAttribute, "")),
		Recovery:        setup(Minor, nothingLost, "aws dynamodb update-continuous-backups", ""),
		Protection:      lasting(setup(Minor, nothingLost, "aws dynamodb update-table --deletion-protection-enabled", "")),
		TopicPolicy:     setup(Serious, explainsItself, "aws sns set-topic-attributes --attribute-name Policy …", ""),
		TopicKey:        setup(Serious, explainsItself, "take the key away, or use one of your own whose policy lets CloudWatch use it", ""),
		Subscribers:     deed(Serious, explainsItself, "aws sns subscribe, or alarmEmail"+deploy),
	}
}

// subject is what one judgement is about.
type subject struct {
	check Check
	part  string
}

// examination collects judgements. Several about the same subject count as one, of which the first problem is told: the
// others would be its consequences.
type examination struct {
	local    bool
	abouts   map[Check]about
	seen     map[subject]bool // true: something is wrong
	findings []Finding
}

// check makes a judgement. The problem's format and arguments are only used when it is not.
func (e *examination) check(c Check, part string, ok bool, format string, args ...any) {
	at := subject{c, part}
	already := e.seen[at]
	e.seen[at] = already || !ok
	if ok || already {
		return
	}
	a := e.abouts[c]
	e.findings = append(e.findings, Finding{
		Check: c, Part: part, Severity: a.severity, Problem: fmt.Sprintf(format, args...), Promise: a.promise, Mend: a.how(e.local),
	})
}

// wrong tells whether a check has come out badly for any part.
func (e *examination) wrong(c Check) bool {
	for at, wrong := range e.seen {
		if wrong && at.check == c {
			return true
		}
	}
	return false
}
