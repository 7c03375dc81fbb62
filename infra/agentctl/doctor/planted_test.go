package doctor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"
	"github.com/jonboulle/clockwork"

	"agentworker/infra/agentctl/doctor"
	"agentworker/internal/emulator"
	"agentworker/internal/topology"
)

const topic = "arn:aws:sns:us-east-1:000000000000:agent-dead-letters"

// Nothing is wrong with a stack as it comes up, and what could not be checked is said.
func TestNothingIsFoundInASoundStack(t *testing.T) {
	t.Parallel()
	report := start(t).examine(t)
	only(t, report)
	want := []doctor.NotMade{
		{What: "agent-checkpoints", Needs: "dynamodb:DescribeContinuousBackups", Why: doctor.NotServed},
		{What: "the roles' permissions", Needs: "iam:SimulatePrincipalPolicy", Why: doctor.NotServed},
	}
	if diff := cmp.Diff(want, report.NotMade); diff != "" {
		t.Errorf("not checked (-want +got):\n%s", diff)
	}
	if report.Stack != "agentworker-local" || report.Checks < 60 {
		t.Errorf("got %d checks of %s, want 60 or more of agentworker-local", report.Checks, report.Stack)
	}
}

// Each fault is planted alone into a running stack, by AWS's own calls where there are any, and is found by its name with
// nothing beside it.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config func(*emulator.Config)
		plant  func(*stack)
		want   []found
	}{
		"visibility below six times the worker's timeout": {
			plant: func(s *stack) { s.set(s.Tasks.URL, map[string]string{"VisibilityTimeout": "359"}) },
			want:  []found{{"visibility-timeout", "agent-tasks"}},
		},
		"a batching window that the visibility does not count": {
			plant: func(s *stack) {
				s.update(func(in *lambda.UpdateEventSourceMappingInput) { in.MaximumBatchingWindowInSeconds = aws.Int32(5) })
			},
			want: []found{{"visibility-timeout", "agent-tasks"}},
		},
		"few receives": {
			plant: func(s *stack) { s.redrive(s.arn(s.Ordered.DeadLetterURL), 3) },
			want:  []found{{"max-receive-count", "agent-tasks-ordered"}},
		},
		"another number of receives than the worker is told": {
			config: func(c *emulator.Config) { c.WorkerEnv = []string{"MAX_RECEIVE_COUNT=9"} },
			want:   []found{{"max-receive-count", "worker"}},
		},
		"no redrive policy": {
			plant: func(s *stack) { s.set(s.Tasks.URL, map[string]string{"RedrivePolicy": ""}) },
			want:  []found{{doctor.Redrive, "agent-tasks"}},
		},
		"dead letters go elsewhere": {
			plant: func(s *stack) {
				_, err := s.sqs.CreateQueue(s.Context(), &sqs.CreateQueueInput{QueueName: aws.String("elsewhere.fifo"), Attributes: map[string]string{"FifoQueue": "true"}})
				if err != nil {
					s.Fatal(err)
				}
				s.redrive(s.arn("elsewhere.fifo"), 5)
			},
			want: []found{{doctor.Redrive, "agent-tasks-ordered.fifo"}},
		},
		"a dead-letter queue with one of its own": {
			plant: func(s *stack) {
				if _, err := s.sqs.CreateQueue(s.Context(), &sqs.CreateQueueInput{QueueName: aws.String("further")}); err != nil {
					s.Fatal(err)
				}
				s.set(s.Tasks.DeadLetterURL, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":5}`, s.arn("further"))})
			},
			want: []found{{doctor.Redrive, "agent-tasks-dlq"}},
		},
		"anybody's dead letters are let in": {
			plant: func(s *stack) {
				s.set(s.Tasks.DeadLetterURL, map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"allowAll"}`})
			},
			want: []found{{doctor.RedriveAllow, "agent-tasks-dlq"}},
		},
		"no dead letters are let in": {
			plant: func(s *stack) {
				s.set(s.Ordered.DeadLetterURL, map[string]string{"RedriveAllowPolicy": `{"redrivePermission":"denyAll"}`})
			},
			want: []found{{doctor.RedriveAllow, "agent-tasks-ordered-dlq.fifo"}},
		},
		"a dead-letter queue that keeps messages no longer than the queue": {
			plant: func(s *stack) {
				s.set(s.Tasks.DeadLetterURL, map[string]string{"MessageRetentionPeriod": "604800"})
			},
			want: []found{{"dead-letter-retention", "agent-tasks"}},
		},
		"a queue without encryption": {
			plant: func(s *stack) {
				s.set(s.Ordered.URL, map[string]string{"SqsManagedSseEnabled": "false"})
			},
			want: []found{{doctor.Encryption, "agent-tasks-ordered.fifo"}},
		},
		"a queue that is gone": {
			plant: func(s *stack) {
				if _, err := s.sqs.DeleteQueue(s.Context(), &sqs.DeleteQueueInput{QueueUrl: &s.Ordered.DeadLetterURL}); err != nil {
					s.Fatal(err)
				}
			},
			want: []found{{doctor.Presence, "agent-tasks-ordered-dlq.fifo"}},
		},
		"a dead letter": {
			plant: func(s *stack) {
				if _, err := s.sqs.SendMessage(s.Context(), &sqs.SendMessageInput{QueueUrl: &s.Tasks.DeadLetterURL, MessageBody: aws.String("dead")}); err != nil {
					s.Fatal(err)
				}
				s.alarming("agent-tasks-dlq-depth")
			},
			want: []found{{doctor.DeadLetters, "agent-tasks-dlq"}},
		},
		"the mapping is disabled": {
			plant: func(s *stack) {
				s.update(func(in *lambda.UpdateEventSourceMappingInput) { in.Enabled = aws.Bool(false) })
			},
			want: []found{{doctor.Mapping, "agent-tasks"}},
		},
		"failures of a batch are not reported": {
			plant: func(s *stack) {
				s.update(func(in *lambda.UpdateEventSourceMappingInput) {
					in.FunctionResponseTypes = []lambdatypes.FunctionResponseType{}
				})
			},
			want: []found{{"partial-batch", "agent-tasks"}},
		},
		"the worker does not report failures": {
			config: func(c *emulator.Config) { c.WorkerEnv = []string{"REPORT_BATCH_ITEM_FAILURES=false"} },
			want:   []found{{"partial-batch", "worker"}},
		},
		"a mapping without a bound": {
			plant: func(s *stack) {
				s.update(func(in *lambda.UpdateEventSourceMappingInput) { in.ScalingConfig = &lambdatypes.ScalingConfig{} })
			},
			want: []found{{"mapping-concurrency", "agent-tasks"}},
		},
		"another table": {
			config: func(c *emulator.Config) { c.WorkerEnv = []string{"TABLE_NAME=yesterday"} },
			want:   []found{{doctor.Environment, "worker"}},
		},
		"an environment that the worker does not start with": {
			config: func(c *emulator.Config) { c.WorkerEnv = []string{"RETRIES=many"} },
			want:   []found{{doctor.Environment, "worker"}},
		},
		"as many tries as receives": {
			config: func(c *emulator.Config) { c.WorkerEnv = []string{"RETRIES=4"} },
			want:   []found{{"max-receive-count", "agent-tasks"}, {"max-receive-count", "agent-tasks-ordered"}},
		},
		"records that expire before their messages": {
			config: func(c *emulator.Config) { c.WorkerEnv = []string{"RECORD_RETENTION=48h"} },
			want:   []found{{"record-retention", "agentworker-local"}},
		},
		"a function that never runs": {
			plant: func(s *stack) { s.reserve("worker", 0) },
			want:  []found{{doctor.Reserved, "worker"}},
		},
		"a reservation that starves the mappings": {
			plant: func(s *stack) { s.reserve("worker", 3) },
			want:  []found{{doctor.Reserved, "worker"}},
		},
		"an account that starves the mappings": {
			plant: func(s *stack) { s.reserve("submit", 31) },
			want:  []found{{doctor.Account, "worker"}},
		},
		"an alarm whose actions are disabled": {
			plant: func(s *stack) {
				_, err := s.cloudwatch.DisableAlarmActions(s.Context(), &cloudwatch.DisableAlarmActionsInput{AlarmNames: []string{"agent-tasks-dlq-depth"}})
				if err != nil {
					s.Fatal(err)
				}
			},
			want: []found{{doctor.AlarmActions, "agent-tasks-dlq-depth"}},
		},
		"an alarm that is gone": {
			plant: func(s *stack) {
				_, err := s.cloudwatch.DeleteAlarms(s.Context(), &cloudwatch.DeleteAlarmsInput{AlarmNames: []string{"agent-tasks-ordered-dlq-depth"}})
				if err != nil {
					s.Fatal(err)
				}
			},
			want: []found{{doctor.AlarmMissing, "agent-tasks-ordered-dlq-depth"}},
		},
		"an alarm that may not invoke its function": {
			plant: func(s *stack) { s.forbid("agent-tasks-dlq-depth") },
			want:  []found{{doctor.AlarmPermission, "agent-tasks-dlq-depth"}},
		},
		"a schedule that is disabled": {
			plant: func(s *stack) {
				if _, err := s.events.DisableRule(s.Context(), &eventbridge.DisableRuleInput{Name: aws.String("dead-letter-sweep")}); err != nil {
					s.Fatal(err)
				}
			},
			want: []found{{doctor.Schedule, "dead-letter-sweep"}},
		},
		"a schedule that may not invoke its function": {
			plant: func(s *stack) { s.forbid("dead-letter-sweep") },
			want:  []found{{doctor.Schedule, "dead-letter-sweep"}},
		},
		"a table from which nothing expires": {
			plant: func(s *stack) { s.expire("expires_at", false) },
			want:  []found{{doctor.TTL, "agent-checkpoints"}},
		},
		"a table without deletion protection": {
			plant: func(s *stack) {
				_, err := s.dynamodb.UpdateTable(s.Context(), &dynamodb.UpdateTableInput{TableName: &s.Table, DeletionProtectionEnabled: aws.Bool(false)})
				if err != nil {
					s.Fatal(err)
				}
			},
			want: []found{{doctor.Protection, "agent-checkpoints"}},
		},
		"a topic to which no alarm may publish": {
			plant: func(s *stack) { s.topicAttribute("Policy", `{"Version":"2012-10-17","Statement":[]}`) },
			want:  []found{{doctor.TopicPolicy, topic}},
		},
		"a topic with a key that alarms may not use": {
			plant: func(s *stack) { s.topicAttribute("KmsMasterKeyId", "alias/aws/sns") },
			want:  []found{{doctor.TopicKey, topic}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var change []func(*emulator.Config)
			if test.config != nil {
				change = append(change, test.config)
			}
			s := start(t, change...)
			if test.plant != nil {
				test.plant(s)
			}
			only(t, s.examine(t), test.want...)
		})
	}
}

// A message that nobody works off is found by its age, without receiving it: here one that is in flight for ever.
func TestAMessageThatIsOlderThanItShouldBe(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClock()
	s := start(t, func(c *emulator.Config) { c.Clock = clock })
	enable := func(on bool) {
		s.update(func(in *lambda.UpdateEventSourceMappingInput) { in.Enabled = &on })
	}
	enable(false)
	if _, err := s.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &s.Tasks.URL, MessageBody: aws.String("held")}); err != nil {
		t.Fatal(err)
	}
	sent := clock.Now()
	wait := func(seconds string) {
		s.set(s.Tasks.URL, map[string]string{"ReceiveMessageWaitTimeSeconds": seconds})
	}
	wait("0") // a long poll would end by the clock
	s.eventually("the message", func() bool {
		out, err := s.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &s.Tasks.URL, VisibilityTimeout: 43200})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 { // the mapping's last poll has taken it, as nobody was there any more
			clock.Advance(topology.Default().Tasks.Queue.Visibility + time.Second)
		}
		return len(out.Messages) == 1
	})
	wait("20")
	enable(true)
	clock.Advance(sent.Add(30 * time.Minute).Sub(clock.Now()))
	only(t, s.examine(t))
	clock.Advance(time.Minute)
	only(t, s.examine(t), found{doctor.MessageAge, "agent-tasks"})
}

// What make run has in its data directory it puts right when it starts again, where doctor says so.
func TestWhatStartingAgainMends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := func(c *emulator.Config) { c.DataDir = dir }
	s := start(t, keep)
	s.set(s.Ordered.URL, map[string]string{"SqsManagedSseEnabled": "false"})
	s.set(s.Tasks.DeadLetterURL, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":5}`, s.arn(s.Tasks.URL))})
	s.expire("expires_at", false)
	report := s.examine(t)
	only(t, report, found{doctor.Redrive, "agent-tasks-dlq"}, found{doctor.Encryption, "agent-tasks-ordered.fifo"}, found{doctor.TTL, "agent-checkpoints"})
	for _, f := range report.Findings {
		if again := strings.Contains(f.Mend, "start make run again"); again != (f.Check != doctor.TTL) {
			t.Errorf("%s: got %q, which starting again mends: %v", f.Check, f.Mend, !again)
		}
	}
	if err := s.chain.Stop(); err != nil {
		t.Fatal(err)
	}
	only(t, start(t, keep).examine(t), found{doctor.TTL, "agent-checkpoints"})
}

func (s *stack) redrive(target string, receives int) {
	s.Helper()
	s.set(s.Ordered.URL, map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, target, receives)})
}

func (s *stack) reserve(function string, n int32) {
	s.Helper()
	_, err := s.lambda.PutFunctionConcurrency(s.Context(), &lambda.PutFunctionConcurrencyInput{FunctionName: &function, ReservedConcurrentExecutions: &n})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stack) forbid(statement string) {
	s.Helper()
	_, err := s.lambda.RemovePermission(s.Context(), &lambda.RemovePermissionInput{FunctionName: aws.String("dlqalarm"), StatementId: &statement})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stack) expire(attribute string, enabled bool) {
	s.Helper()
	_, err := s.dynamodb.UpdateTimeToLive(s.Context(), &dynamodb.UpdateTimeToLiveInput{
		TableName: &s.Table, TimeToLiveSpecification: &ddbtypes.TimeToLiveSpecification{AttributeName: &attribute, Enabled: &enabled},
	})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stack) topicAttribute(name, value string) {
	s.Helper()
	_, err := s.sns.SetTopicAttributes(s.Context(), &sns.SetTopicAttributesInput{TopicArn: &s.TopicARN, AttributeName: &name, AttributeValue: &value})
	if err != nil {
		s.Fatal(err)
	}
}
