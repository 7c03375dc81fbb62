package doctor

import "fmt"

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
	mend     string // %s is the part
}

const redeploy = "deploy the stack again: make deploy"

// abouts is a table, not state: it is made anew for each examination.
func abouts() map[Check]about {
	return map[Check]about{
		"visibility-timeout":    {Serious, takesEffectOnce, "cdk deploy -c visibilitySeconds=…, or leave it out: it then follows workerTimeoutSeconds and batchingWindowSeconds"},
		"max-receive-count":     {Serious, nothingLost, "cdk deploy -c maxReceiveCount=…, with retries=… below it by two or more"},
		"dead-letter-type":      {Critical, orderKept, redeploy},
		"dead-letter-retention": {Critical, nothingLost, "cdk deploy -c queueRetentionDays=… -c deadLetterRetentionDays=…, up to 14"},
		"partial-batch":         {Critical, nothingLost + "; " + batchMates, "aws lambda update-event-source-mapping --function-response-types ReportBatchItemFailures, and REPORT_BATCH_ITEM_FAILURES=true at the worker; or " + redeploy},
		"mapping-concurrency":   {Serious, nothingLost, "cdk deploy -c concurrency=…"},
		"batch":                 {Serious, orderKept, "cdk deploy -c batchSize=… -c batchingWindowSeconds=… -c orderedBatchSize=…"},
		"function-timeout":      {Serious, endsVisibly, "cdk deploy -c workerTimeoutSeconds=…"},
		"record-retention":      {Serious, takesEffectOnce, "cdk deploy -c recordRetentionDays=…"},
		"sweep-interval":        {Minor, explainsItself, redeploy},
		"alarm-period":          {Minor, explainsItself, redeploy},
		"name":                  {Minor, endsVisibly, redeploy},
		"range":                 {Serious, endsVisibly, redeploy},

		Presence:        {Critical, endsVisibly, redeploy},
		Environment:     {Critical, nothingLost, redeploy},
		Redrive:         {Critical, endsVisibly, "aws sqs set-queue-attributes with a RedrivePolicy to the stack's own dead-letter queue; or " + redeploy},
		RedriveAllow:    {Serious, endsVisibly, "aws sqs set-queue-attributes with a RedriveAllowPolicy byQueue that names the queue; or " + redeploy},
		Encryption:      {Serious, keptPrivate, "aws sqs set-queue-attributes --attributes SqsManagedSseEnabled=true; or " + redeploy},
		TLS:             {Minor, keptPrivate, redeploy},
		DeadLetters:     {Serious, endsVisibly, "agentctl dlq ls says why they failed; when that is mended: agentctl dlq redrive"},
		MessageAge:      {Critical, endsVisibly, "README, the heading of the queue's age alarm; are there worker errors or throttles?"},
		Mapping:         {Critical, endsVisibly, "aws lambda update-event-source-mapping --enabled; or " + redeploy},
		Consumer:        {Critical, nothingLost, "aws lambda delete-event-source-mapping, of the one that is not the stack's"},
		Filter:          {Critical, nothingLost, "aws lambda update-event-source-mapping --filter-criteria '{}'"},
		FunctionState:   {Critical, endsVisibly, redeploy},
		Runtime:         {Minor, endsVisibly, redeploy},
		Reserved:        {Critical, endsVisibly, "aws lambda delete-function-concurrency, or put-function-concurrency of what the mappings need"},
		Account:         {Serious, nothingLost, "cdk deploy -c concurrency=…, or ask AWS for a higher quota of concurrent executions"},
		Role:            {Critical, endsVisibly, "give the role what it lacks: " + redeploy},
		AlarmMissing:    {Serious, explainsItself, redeploy},
		AlarmActions:    {Serious, explainsItself, "aws cloudwatch enable-alarm-actions; or " + redeploy},
		AlarmState:      {Serious, explainsItself, "README, the heading of the alarm's name"},
		AlarmPermission: {Serious, explainsItself, "aws lambda add-permission for the principal and the source ARN; or " + redeploy},
		Schedule:        {Serious, explainsItself, "aws events enable-rule; or " + redeploy},
		TTL:             {Minor, costsTheSame, "aws dynamodb update-time-to-live with expires_at; or " + redeploy},
		Recovery:        {Minor, nothingLost, "aws dynamodb update-continuous-backups; or " + redeploy},
		Protection:      {Minor, nothingLost, "aws dynamodb update-table --deletion-protection-enabled; or " + redeploy},
		TopicPolicy:     {Serious, explainsItself, redeploy},
		TopicKey:        {Serious, explainsItself, "take the key away, or use one of your own whose policy lets CloudWatch use it"},
		Subscribers:     {Serious, explainsItself, "aws sns subscribe, or cdk deploy -c alarmEmail=…"},
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
	seen     map[subject]bool // true: something is wrong
	findings []Finding
}

// check makes a judgement and returns ok. The problem's format and arguments are only used when it is not.
func (e *examination) check(c Check, part string, ok bool, format string, args ...any) bool {
	at := subject{c, part}
	already := e.seen[at]
	e.seen[at] = already || !ok
	if ok || already {
		return ok
	}
	a := abouts()[c]
	e.findings = append(e.findings, Finding{
		Check: c, Part: part, Severity: a.severity, Problem: fmt.Sprintf(format, args...), Promise: a.promise, Mend: a.mend,
	})
	return false
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
