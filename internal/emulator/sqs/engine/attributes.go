package engine

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaximumMessageSize is the largest message and the largest batch in bytes, attributes included.
// Source: Amazon SQS Developer Guide, "Amazon SQS message quotas".
const MaximumMessageSize = 1_048_576

// config is what a queue's attributes mean.
type config struct {
	fifo           bool
	contentDedup   bool
	perGroupDedup  bool
	visibility     time.Duration
	delay          time.Duration
	wait           time.Duration
	retention      time.Duration
	maximumSize    int
	deadLetterArn  string
	maxReceives    int
	allowedSources []string // of this queue as a dead-letter queue, with redriveBy byQueue
	redriveBy      string
}

type redrivePolicy struct {
	DeadLetterTargetArn string         `json:"deadLetterTargetArn"`
	MaxReceiveCount     jsontext.Value `json:"maxReceiveCount"`
}

type redriveAllowPolicy struct {
	RedrivePermission string   `json:"redrivePermission"`
	SourceQueueArns   []string `json:"sourceQueueArns,omitempty"`
}

// rule says how one attribute that can be set is checked and brought into normal form.
type rule struct {
	name     string
	fallback string // shown by GetQueueAttributes when the attribute was not set; "" shows nothing
	fifoOnly bool
	// check returns the normal form, or ok false for a value that is refused.
	check func(value string) (normal string, ok bool)
}

// rules holds every attribute that can be set.
// Source: Amazon SQS API Reference, SetQueueAttributes and CreateQueue.
func rules() []rule {
	return []rule{
		{name: "VisibilityTimeout", fallback: "30", check: between(0, 43_200)},
		{name: "DelaySeconds", fallback: "0", check: between(0, 900)},
		{name: "MaximumMessageSize", fallback: strconv.Itoa(MaximumMessageSize), check: between(1024, MaximumMessageSize)},
		{name: "MessageRetentionPeriod", fallback: "345600", check: between(60, 1_209_600)},
		{name: "ReceiveMessageWaitTimeSeconds", fallback: "0", check: between(0, 20)},
		{name: "Policy", check: jsonObject},
		{name: "RedrivePolicy", check: anyText}, // checked with the engine's queues at hand
		{name: "RedriveAllowPolicy", check: anyText},
		{name: "KmsMasterKeyId", check: anyText},
		{name: "KmsDataKeyReusePeriodSeconds", check: between(60, 86_400)},
		{name: "SqsManagedSseEnabled", fallback: "true", check: boolean},
		{name: "FifoQueue", fifoOnly: true, check: boolean},
		{name: "ContentBasedDeduplication", fallback: "false", fifoOnly: true, check: boolean},
		{name: "DeduplicationScope", fallback: "queue", fifoOnly: true, check: oneOf("queue", "messageGroup")},
		{name: "FifoThroughputLimit", fallback: "perQueue", fifoOnly: true, check: oneOf("perQueue", "perMessageGroupId")},
	}
}

func between(low, high int) func(string) (string, bool) {
	return func(value string) (string, bool) {
		n, err := strconv.Atoi(value)
		return strconv.Itoa(n), err == nil && n >= low && n <= high
	}
}

func oneOf(values ...string) func(string) (string, bool) {
	return func(value string) (string, bool) { return value, slices.Contains(values, value) }
}

func boolean(value string) (string, bool) {
	b, err := strconv.ParseBool(value)
	return strconv.FormatBool(b), err == nil
}

func anyText(value string) (string, bool) { return value, true }

func jsonObject(value string) (string, bool) {
	v := jsontext.Value(value)
	return value, v.IsValid() && v.Kind() == '{'
}

// patch applies changed attributes to those a queue has. An empty value sets the default again.
func (e *Engine) patch(q *queue, changes map[string]string) (map[string]string, error) {
	out := maps.Clone(q.attrs)
	known := rules()
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		value := changes[name]
		i := slices.IndexFunc(known, func(r rule) bool { return r.name == name })
		if i < 0 {
			return nil, refuse(InvalidAttributeName, "Unknown Attribute %s.", name)
		}
		r := known[i]
		if r.fifoOnly && !q.cfg.fifo {
			if name == "DeduplicationScope" || name == "FifoThroughputLimit" {
				return nil, refuse(InvalidAttributeName, "You can specify the %s only when FifoQueue is set to true.", name)
			}
			return nil, refuse(InvalidAttributeName, "Unknown Attribute %s.", name)
		}
		if value == "" {
			delete(out, name)
			continue
		}
		normal, ok := r.check(value)
		if !ok {
			return nil, refuse(InvalidAttributeValue, "Invalid value for the parameter %s.", name)
		}
		out[name] = normal
	}
	if err := e.checkTogether(q, out, changes); err != nil {
		return nil, err
	}
	return out, nil
}

// checkTogether looks at what one attribute says about another, or about another queue.
func (e *Engine) checkTogether(q *queue, attrs, changes map[string]string) error {
	if q.cfg.fifo && attrs["FifoQueue"] != "true" {
		return refuse(InvalidAttributeValue, "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.")
	}
	if attrs["FifoThroughputLimit"] == "perMessageGroupId" && attrs["DeduplicationScope"] != "messageGroup" {
		return refuse(InvalidAttributeValue,
			"FifoThroughputLimit perMessageGroupId is allowed only when DeduplicationScope is messageGroup.")
	}
	if attrs["KmsMasterKeyId"] != "" {
		if changes["SqsManagedSseEnabled"] == "true" && changes["KmsMasterKeyId"] != "" {
			return refuse(InvalidAttributeName, "You can use one type of server-side encryption (SSE) at one time. "+
				"You can either enable KMS SSE or SQS SSE.")
		}
		// The one that was set last wins.
		if changes["SqsManagedSseEnabled"] == "true" {
			delete(attrs, "KmsMasterKeyId")
			delete(attrs, "KmsDataKeyReusePeriodSeconds")
		} else {
			attrs["SqsManagedSseEnabled"] = "false"
		}
	}
	if text := changes["RedriveAllowPolicy"]; text != "" {
		if err := checkRedriveAllow(text); err != nil {
			return err
		}
	}
	if text := changes["RedrivePolicy"]; text != "" {
		normal, err := e.checkRedrive(q, text)
		if err != nil {
			return err
		}
		attrs["RedrivePolicy"] = normal
	}
	return nil
}

func checkRedriveAllow(text string) error {
	bad := func(reason string) error { return invalidValue(text, "RedriveAllowPolicy", reason) }
	var p redriveAllowPolicy
	if json.Unmarshal([]byte(text), &p) != nil {
		return bad("It is not a JSON object with redrivePermission and sourceQueueArns.")
	}
	switch p.RedrivePermission {
	case "allowAll", "denyAll":
		if len(p.SourceQueueArns) > 0 {
			return bad("sourceQueueArns is allowed only with redrivePermission byQueue.")
		}
	case "byQueue":
		if len(p.SourceQueueArns) < 1 || len(p.SourceQueueArns) > 10 {
			return bad("redrivePermission byQueue takes 1 to 10 sourceQueueArns.")
		}
	default:
		return bad("redrivePermission must be allowAll, denyAll or byQueue.")
	}
	return nil
}

// checkRedrive returns the policy in the form that GetQueueAttributes shows.
func (e *Engine) checkRedrive(q *queue, text string) (string, error) {
	bad := func(reason string) (string, error) { return "", invalidValue(text, "RedrivePolicy", reason) }
	var p redrivePolicy
	if json.Unmarshal([]byte(text), &p) != nil {
		return bad("Redrive policy is not a valid JSON map.")
	}
	if p.DeadLetterTargetArn == "" {
		return bad("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	}
	if len(p.MaxReceiveCount) == 0 {
		return bad("Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	}
	count, ok := between(1, 1000)(p.count())
	if !ok {
		return bad("Invalid value for maxReceiveCount: it must be between 1 and 1000.")
	}
	target := e.byArn(p.DeadLetterTargetArn)
	switch {
	case target == nil:
		return bad("Dead letter target does not exist.")
	case target == q || target.arn == q.arn:
		return bad("A queue cannot be its own dead-letter queue.")
	case target.cfg.fifo != q.cfg.fifo:
		return bad("Dead-letter queue must be same type of queue as the source.")
	case !target.admits(q.arn):
		return bad("The redrive allow policy of the dead-letter queue does not permit this source queue.")
	}
	arn, _ := json.Marshal(p.DeadLetterTargetArn)
	return `{"deadLetterTargetArn":` + string(arn) + `,"maxReceiveCount":` + count + `}`, nil
}

// count is maxReceiveCount without the quotes that some clients put around it.
func (p redrivePolicy) count() string {
	if unquoted, err := strconv.Unquote(string(p.MaxReceiveCount)); err == nil {
		return unquoted
	}
	return string(p.MaxReceiveCount)
}

func (q *queue) admits(source string) bool {
	switch q.cfg.redriveBy {
	case "denyAll":
		return false
	case "byQueue":
		return slices.Contains(q.cfg.allowedSources, source)
	}
	return true
}

// configure types the attributes, which patch has checked.
func configure(attrs map[string]string) config {
	get := func(name string) string {
		if v, ok := attrs[name]; ok {
			return v
		}
		known := rules()
		return known[slices.IndexFunc(known, func(r rule) bool { return r.name == name })].fallback
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(get(name))
		return n
	}
	seconds := func(name string) time.Duration { return time.Duration(number(name)) * time.Second }

	cfg := config{
		fifo:          attrs["FifoQueue"] == "true",
		contentDedup:  attrs["ContentBasedDeduplication"] == "true",
		perGroupDedup: attrs["DeduplicationScope"] == "messageGroup",
		visibility:    seconds("VisibilityTimeout"),
		delay:         seconds("DelaySeconds"),
		wait:          seconds("ReceiveMessageWaitTimeSeconds"),
		retention:     seconds("MessageRetentionPeriod"),
		maximumSize:   number("MaximumMessageSize"),
	}
	if text := attrs["RedrivePolicy"]; text != "" {
		var p redrivePolicy
		if json.Unmarshal([]byte(text), &p) == nil {
			cfg.deadLetterArn = p.DeadLetterTargetArn
			cfg.maxReceives, _ = strconv.Atoi(p.count())
		}
	}
	if text := attrs["RedriveAllowPolicy"]; text != "" {
		var p redriveAllowPolicy
		if json.Unmarshal([]byte(text), &p) == nil {
			cfg.redriveBy, cfg.allowedSources = p.RedrivePermission, p.SourceQueueArns
		}
	}
	return cfg
}

// show returns every attribute that GetQueueAttributes knows.
func (q *queue) show() map[string]string {
	unix := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	out := map[string]string{
		"QueueArn":                              q.arn,
		"CreatedTimestamp":                      unix(q.created),
		"LastModifiedTimestamp":                 unix(q.modified),
		"ApproximateNumberOfMessages":           strconv.Itoa(q.visible()),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(q.inFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(q.delayed),
	}
	for _, r := range rules() {
		if v, ok := q.attrs[r.name]; ok {
			out[r.name] = v
		} else if r.fallback != "" && (!r.fifoOnly || q.cfg.fifo) {
			out[r.name] = r.fallback
		}
	}
	return out
}
