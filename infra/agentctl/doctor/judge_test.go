package doctor_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/infra/agentctl/doctor"
	"agentworker/internal/config"
)

const (
	sqsARN    = "arn:aws:sqs:eu-west-1:123456789012:"
	lambdaARN = "arn:aws:lambda:eu-west-1:123456789012:function:"
	alarmsARN = "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:"
	ruleARN   = "arn:aws:events:eu-west-1:123456789012:rule/sweep"
	topicARN  = "arn:aws:sns:eu-west-1:123456789012:topic"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func policy(t *testing.T, document string) doctor.Policy {
	t.Helper()
	p, err := doctor.ParsePolicy(document)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const tlsOnly = `{"Version":"2012-10-17","Statement":[{"Action":"sqs:*","Condition":{"Bool":{"aws:SecureTransport":"false"}},"Effect":"Deny","Principal":{"AWS":"*"},"Resource":"x"}]}`

// deployed is what is seen of a sound stack on AWS.
func deployed(t *testing.T) *doctor.State {
	t.Helper()
	url := func(name string) string { return "https://sqs.eu-west-1.amazonaws.com/123456789012/" + name }
	queue := func(name string, fifo bool, retention time.Duration) *doctor.Queue {
		return &doctor.Queue{
			Name: name, URL: url(name), ARN: sqsARN + name, FIFO: fifo, Visibility: 6 * time.Minute, Retention: retention, Wait: 20 * time.Second,
			ManagedEncryption: true, Policy: policy(t, tlsOnly),
		}
	}
	const day = 24 * time.Hour
	pair := func(name, dead string, fifo bool, batch int) doctor.Pair {
		p := doctor.Pair{
			Queue: queue(name, fifo, 7*day), DeadLetter: queue(dead, fifo, 14*day), MappingsRead: true,
			Mappings: []doctor.EventSource{{UUID: name, FunctionARN: lambdaARN + "worker", State: "Enabled", BatchSize: batch, MaximumConcurrency: 10, ReportFailures: true}},
		}
		p.Queue.Redrive = &doctor.RedrivePolicy{TargetARN: p.DeadLetter.ARN, MaxReceiveCount: 5}
		p.DeadLetter.Allow = &doctor.RedriveAllowPolicy{Permission: "byQueue", Sources: []string{p.Queue.ARN}}
		p.Queue.Age = aws.Duration(29 * time.Minute)
		return p
	}
	function := func(name string, timeout time.Duration, environment map[string]string) *doctor.Function {
		return &doctor.Function{
			Name: name, ARN: lambdaARN + name, Runtime: "provided.al2023", State: "Active", LastUpdate: "Successful", Timeout: timeout, MemoryMiB: 256,
			Environment: environment, ReservedKnown: true, PolicyRead: true, RoleChecked: true,
		}
	}
	s := &doctor.State{
		Stack: "agentworker-prod", TableName: "table", TopicARN: topicARN,
		Tasks: pair("agent-tasks-prod-1a2b", "TasksDLQ", false, 10), Ordered: pair("agent-tasks-ordered-prod-1a2b.fifo", "OrderedDLQ.fifo", true, 1),
		Account: &doctor.Limits{Concurrent: 1000, Unreserved: 1000}, AlarmsRead: true,
		Rule:  &doctor.Rule{Name: "sweep", ARN: ruleARN, Expression: "rate(5 minutes)", Enabled: true, TargetsRead: true, Targets: []string{lambdaARN + "dlqalarm"}},
		Table: &doctor.Table{Name: "table", Status: "ACTIVE", Protected: true, TTLRead: true, TTL: "expires_at", Recovery: aws.Bool(true)},
		Topic: &doctor.Topic{ARN: topicARN, Subscriptions: 1, Policy: policy(t, `{"Statement":[
			{"Effect":"Deny","Principal":"*","Action":"sns:Publish","Condition":{"Bool":{"aws:SecureTransport":false}}},
			{"Effect":"Allow","Principal":{"Service":"cloudwatch.amazonaws.com"},"Action":["sns:Publish"],"Condition":{"StringEquals":{"aws:SourceAccount":"123456789012"}}}]}`)},
	}
	s.Worker = function("worker", time.Minute, config.Variables(config.Worker{
		Table: "table", QueueURL: s.Tasks.Queue.URL, OrderedQueueURL: s.Ordered.Queue.URL, Retries: 3, MaxReceiveCount: 5, PartialBatch: true,
		RecordRetention: 90 * day, MetricsNamespace: "agentworker",
	}))
	s.Submit = function("submit", 29*time.Second, config.Variables(config.Submit{
		Table: "table", QueueURL: s.Tasks.Queue.URL, OrderedQueueURL: s.Ordered.Queue.URL, RecordRetention: 90 * day,
	}))
	s.DLQAlarm = function("dlqalarm", 30*time.Second, config.Variables(config.DLQAlarm{
		Table: "table", QueueURL: s.Tasks.Queue.URL, OrderedQueueURL: s.Ordered.Queue.URL, DLQURL: s.Tasks.DeadLetter.URL, OrderedDLQURL: s.Ordered.DeadLetter.URL, TopicARN: topicARN, RecordRetention: 90 * day, MetricsNamespace: "agentworker",
	}))
	s.DLQAlarm.Policy = policy(t, `{"Statement":[
		{"Effect":"Allow","Principal":{"Service":"lambda.alarms.cloudwatch.amazonaws.com"},"Action":"lambda:InvokeFunction","Condition":{"ArnLike":{"AWS:SourceArn":"`+alarmsARN+`prod-*-depth"}}},
		{"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"lambda:InvokeFunction","Condition":{"ArnLike":{"AWS:SourceArn":"`+ruleARN+`"}}}]}`)
	alarm := func(name, metric, queue, action string) doctor.Alarm {
		return doctor.Alarm{
			Name: "prod-" + name, ARN: alarmsARN + "prod-" + name, Metric: metric, QueueName: queue, Actions: []string{action}, ActionsEnabled: true,
			State: "OK", Since: now.Add(-time.Hour), Period: time.Minute,
		}
	}
	s.Alarms = []doctor.Alarm{
		alarm("tasks-depth", "ApproximateNumberOfMessagesVisible", "TasksDLQ", lambdaARN+"dlqalarm"),
		alarm("ordered-depth", "ApproximateNumberOfMessagesVisible", "OrderedDLQ.fifo", lambdaARN+"dlqalarm"),
		alarm("tasks-age", "ApproximateAgeOfOldestMessage", "agent-tasks-prod-1a2b", topicARN),
		alarm("api-5xx", "5xx", "", topicARN),
	}
	return s
}

// Each fault alone, in a stack on AWS that is sound otherwise, is one finding. What a local stack can have wrong too is
// planted there.
func TestEachFaultOfADeployedStackIsOneFinding(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage func(*doctor.State)
		want   []found
	}{
		"sound":                           {func(*doctor.State) {}, nil},
		"a queue without TLS":             {func(s *doctor.State) { s.Ordered.Queue.Policy = doctor.Policy{} }, []found{{doctor.TLS, "agent-tasks-ordered-prod-1a2b.fifo"}}},
		"a topic without TLS":             {func(s *doctor.State) { s.Topic.Policy.Statements = s.Topic.Policy.Statements[1:] }, []found{{doctor.TLS, topicARN}}},
		"without TLS, but plain":          {func(s *doctor.State) { s.Plain, s.Ordered.Queue.Policy = true, doctor.Policy{} }, nil},
		"encrypted with a key":            {func(s *doctor.State) { s.Tasks.Queue.ManagedEncryption, s.Tasks.Queue.KeyEncrypts = false, true }, nil},
		"a filter":                        {func(s *doctor.State) { s.Tasks.Mappings[0].Filters = true }, []found{{doctor.Filter, "agent-tasks-prod-1a2b"}}},
		"no mapping":                      {func(s *doctor.State) { s.Ordered.Mappings = nil }, []found{{doctor.Mapping, "agent-tasks-ordered-prod-1a2b.fifo"}}},
		"a mapping that is being deleted": {func(s *doctor.State) { s.Tasks.Mappings[0].State = "Deleting" }, []found{{doctor.Mapping, "agent-tasks-prod-1a2b"}}},
		"a mapping that is being changed": {func(s *doctor.State) { s.Tasks.Mappings[0].State = "Updating" }, nil},
		"somebody else takes messages": {
			func(s *doctor.State) {
				s.Tasks.Mappings = append(s.Tasks.Mappings, doctor.EventSource{UUID: "x", FunctionARN: lambdaARN + "thief", State: "Enabled"})
			},
			[]found{{doctor.Consumer, "agent-tasks-prod-1a2b"}},
		},
		"a batch without a window": {func(s *doctor.State) { s.Tasks.Mappings[0].BatchSize = 100 }, []found{{"batch", "agent-tasks-prod-1a2b"}}},
		"a window of a FIFO queue": {func(s *doctor.State) {
			s.Ordered.Mappings[0].Window = time.Second
			s.Ordered.Queue.Visibility += time.Second
		}, []found{{"batch", "agent-tasks-ordered-prod-1a2b"}}},
		"pollers and a maximum": {func(s *doctor.State) { s.Tasks.Mappings[0].MinimumPollers, s.Tasks.Mappings[0].MaximumPollers = 2, 5 }, []found{{"mapping-concurrency", "agent-tasks-prod-1a2b"}}},
		"pollers beyond the account": {func(s *doctor.State) {
			m := &s.Tasks.Mappings[0]
			m.MaximumConcurrency, m.MinimumPollers, m.MaximumPollers = 0, 2, 100
		}, []found{{doctor.Account, "worker"}}},
		"a new account":       {func(s *doctor.State) { s.Account = &doctor.Limits{Concurrent: 10, Unreserved: 10} }, []found{{doctor.Account, "worker"}}},
		"enough reserved":     {func(s *doctor.State) { s.Worker.Reserved, s.Account.Unreserved = aws.Int(20), 0 }, nil},
		"too little reserved": {func(s *doctor.State) { s.Worker.Reserved = aws.Int(19) }, []found{{doctor.Reserved, "worker"}}},
		"submit stopped":      {func(s *doctor.State) { s.Submit.Reserved = aws.Int(0) }, []found{{doctor.Reserved, "submit"}}},
		"little memory":       {func(s *doctor.State) { s.Worker.MemoryMiB = 64 }, []found{{"range", "worker"}}},
		"a dead-letter queue of another type": {
			func(s *doctor.State) { s.Ordered.DeadLetter.FIFO = false }, []found{{"dead-letter-type", "agent-tasks-ordered-prod-1a2b"}},
		},
		"a slow API":        {func(s *doctor.State) { s.Submit.Timeout = time.Minute }, []found{{"function-timeout", "submit"}}},
		"a longer worker":   {func(s *doctor.State) { s.Worker.Timeout = 61 * time.Second }, []found{{"visibility-timeout", "agent-tasks-ordered-prod-1a2b"}, {"visibility-timeout", "agent-tasks-prod-1a2b"}}},
		"a failed function": {func(s *doctor.State) { s.DLQAlarm.State = "Failed" }, []found{{doctor.FunctionState, "dlqalarm"}}},
		"a failed update":   {func(s *doctor.State) { s.Worker.LastUpdate = "Failed" }, []found{{doctor.FunctionState, "worker"}}},
		"an idle function":  {func(s *doctor.State) { s.DLQAlarm.State = "Inactive" }, nil},
		"another runtime":   {func(s *doctor.State) { s.Submit.Runtime = "provided.al2" }, []found{{doctor.Runtime, "submit"}}},
		"a role that lacks an action": {
			func(s *doctor.State) { s.Worker.Denied = []string{"sqs:ChangeMessageVisibility on agent-tasks"} }, []found{{doctor.Role, "worker"}},
		},
		"roles not checked": {func(s *doctor.State) { s.Worker.Denied, s.Worker.RoleChecked = []string{"all"}, false }, nil},
		"dlqalarm looks elsewhere": {
			func(s *doctor.State) {
				s.DLQAlarm.Environment = maps.Clone(s.DLQAlarm.Environment)
				s.DLQAlarm.Environment["DLQ_URL"] = "https://sqs.eu-west-1.amazonaws.com/123456789012/yesterday"
			},
			[]found{{doctor.Environment, "dlqalarm"}},
		},
		"an alarm on another queue":  {func(s *doctor.State) { s.Alarms[0].QueueName = "agent-tasks-prod-1a2b" }, []found{{doctor.AlarmMissing, "TasksDLQ"}}},
		"an alarm without an action": {func(s *doctor.State) { s.Alarms[3].Actions = nil }, []found{{doctor.AlarmActions, "prod-api-5xx"}}},
		"an alarm that went off":     {func(s *doctor.State) { s.Alarms[3].State = "ALARM" }, []found{{doctor.AlarmState, "prod-api-5xx"}}},
		"an alarm that has just been made": {
			func(s *doctor.State) {
				s.Alarms[3].State, s.Alarms[3].Since = "INSUFFICIENT_DATA", now.Add(-15*time.Minute)
			}, nil,
		},
		"an alarm that never has data": {
			func(s *doctor.State) {
				s.Alarms[3].State, s.Alarms[3].Since = "INSUFFICIENT_DATA", now.Add(-16*time.Minute)
			},
			[]found{{doctor.AlarmState, "prod-api-5xx"}},
		},
		"the depth alarm goes off with its dead letters": {
			func(s *doctor.State) { s.Alarms[0].State, s.Tasks.DeadLetter.Messages = "ALARM", 2 }, []found{{doctor.DeadLetters, "TasksDLQ"}},
		},
		"the depth alarm goes off alone": {func(s *doctor.State) { s.Alarms[0].State = "ALARM" }, []found{{doctor.AlarmState, "prod-tasks-depth"}}},
		"the age alarm goes off with its message": {
			func(s *doctor.State) { s.Alarms[2].State, s.Tasks.Queue.Age = "ALARM", aws.Duration(31*time.Minute) },
			[]found{{doctor.MessageAge, "agent-tasks-prod-1a2b"}},
		},
		"a slow depth alarm":    {func(s *doctor.State) { s.Alarms[1].Period = 10 * time.Second }, []found{{"alarm-period", "agentworker-prod"}}},
		"the other depth alarm": {func(s *doctor.State) { s.Alarms[0].Period = 10 * time.Second }, []found{{"alarm-period", "agentworker-prod"}}},
		"a topic for alarms by their name": {func(s *doctor.State) {
			s.Topic.Policy.Statements[1].Actions = []string{"SNS:*"}
			s.Topic.Policy.Statements[1].Conditions = []doctor.Condition{{"ArnLike", "aws:sourcearn", alarmsARN + "prod-*"}}
		}, nil},
		"a topic for other alarms": {func(s *doctor.State) {
			s.Topic.Policy.Statements[1].Conditions = []doctor.Condition{{"ArnLike", "aws:sourcearn", alarmsARN + "test-*"}}
		}, []found{{doctor.TopicPolicy, topicARN}}},
		"a rare schedule":           {func(s *doctor.State) { s.Rule.Expression = "rate(0 minutes)" }, []found{{"sweep-interval", "agentworker-prod"}}},
		"a schedule of nothing":     {func(s *doctor.State) { s.Rule.Targets = nil }, []found{{doctor.Schedule, "sweep"}}},
		"a table being deleted":     {func(s *doctor.State) { s.Table.Status = "DELETING" }, []found{{doctor.Presence, "table"}}},
		"another attribute expires": {func(s *doctor.State) { s.Table.TTL = "ttl" }, []found{{doctor.TTL, "table"}}},
		"no point-in-time recovery": {func(s *doctor.State) { s.Table.Recovery = aws.Bool(false) }, []found{{doctor.Recovery, "table"}}},
		"nobody has subscribed":     {func(s *doctor.State) { s.Topic.Subscriptions = 0 }, []found{{doctor.Subscribers, topicARN}}},
		"a function that is gone": {func(s *doctor.State) {
			s.Submit = nil
			s.Missing = []doctor.Resource{{"AWS::Lambda::Function", "submit"}}
		}, []found{{doctor.Presence, "submit"}}},
		"an alarm that is gone": {func(s *doctor.State) {
			s.Alarms = s.Alarms[1:]
			s.Missing = []doctor.Resource{{"AWS::CloudWatch::Alarm", "prod-tasks-depth"}}
		}, []found{{doctor.AlarmMissing, "prod-tasks-depth"}}},
		"nothing could be read": {
			func(s *doctor.State) { *s = doctor.State{Stack: "agentworker-prod"} }, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := deployed(t)
			test.damage(s)
			only(t, s.Judge(now), test.want...)
		})
	}
}

// The worst comes first.
func TestFindingsAreInTheOrderOfTheirWeight(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	s.Table.Protected, s.Topic.Subscriptions, s.Ordered.Mappings[0].State, s.Tasks.Mappings[0].ReportFailures = false, 0, "Disabled", false
	only(t, s.Judge(now),
		found{doctor.Mapping, "agent-tasks-ordered-prod-1a2b.fifo"}, found{"partial-batch", "agent-tasks-prod-1a2b"},
		found{doctor.Subscribers, topicARN}, found{doctor.Protection, "table"})
}

// What the operator may not read makes a stack not known to be sound; what the place does not have does not.
func TestWhatCouldNotBeLookedAt(t *testing.T) {
	t.Parallel()
	for why, want := range map[doctor.Why]bool{doctor.NotPermitted: false, doctor.NotUnderstood: false, doctor.NotServed: true} {
		s := deployed(t)
		s.NotMade = []doctor.NotMade{{What: "roles", Needs: "iam:SimulatePrincipalPolicy", Why: why}, {What: "roles", Needs: "iam:SimulatePrincipalPolicy", Why: why}}
		report := s.Judge(now)
		if report.Sound() != want || len(report.NotMade) != 1 || len(report.Findings) != 0 {
			t.Errorf("%s: got sound %v and %+v, want %v and the reason once", why, report.Sound(), report.NotMade, want)
		}
	}
}

// On AWS a fault is mended by a command, by a setting of the CDK app, or by a change set that sees what was changed by
// hand; what is no matter of set-up is mended by a deed alone.
func TestWhatMendsAFaultOnAWS(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	s.Tasks.Queue.Visibility, s.Ordered.Queue.ManagedEncryption, s.Tasks.DeadLetter.Messages = 359*time.Second, false, 1
	s.Topic.Subscriptions, s.Ordered.Mappings = 0, nil
	for _, f := range s.Judge(now).Findings {
		want := map[doctor.Check]string{
			"visibility-timeout": "batchingWindowSeconds when it is left out; or, if that is right already, a change set with --deployment-mode REVERT_DRIFT",
			doctor.Encryption:    "; or a change set with --deployment-mode REVERT_DRIFT",
			doctor.Subscribers:   "alarmEmail beside all of the stack's settings, in make deploy CDKFLAGS='-c stage=…",
			doctor.Mapping:       "create-event-source-mapping where there is none",
			doctor.DeadLetters:   "when that is mended: agentctl dlq redrive",
		}[f.Check]
		if want == "" || !strings.Contains(f.Mend, want) {
			t.Errorf("%s: got %q, want %q in it", f.Check, f.Mend, want)
		}
	}
}
