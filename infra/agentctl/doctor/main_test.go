package doctor_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentworker/infra/agentctl/deployment"
	"agentworker/infra/agentctl/doctor"
	"agentworker/internal/emulator"
	"agentworker/internal/topology"
)

func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" { // the local chain starts this binary in the place of its functions
		runtime.Start(func(context.Context, json.RawMessage) (map[string]any, error) {
			return map[string]any{"statusCode": 200}, nil
		})
	}
	goleak.VerifyTestMain(m)
}

// stack is a local chain, whose functions do nothing, as doctor finds it.
type stack struct {
	*testing.T
	*deployment.Deployment
	chain *emulator.Chain

	sqs        *sqs.Client
	lambda     *lambda.Client
	cloudwatch *cloudwatch.Client
	events     *eventbridge.Client
	dynamodb   *dynamodb.Client
	sns        *sns.Client
}

func start(t *testing.T, change ...func(*emulator.Config)) *stack {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"worker", "submit", "dlqalarm"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, filepath.Join(dir, name, "bootstrap")); err != nil {
			t.Fatal(err)
		}
	}
	config := emulator.Config{
		Stack: topology.Default(), Workers: 2, BinDir: dir, ToolsDir: filepath.Join("..", "..", "..", ".tools"), Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&config)
	}
	chain, err := emulator.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{T: t, chain: chain}
	t.Cleanup(func() {
		if err := chain.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if s.Deployment != nil {
			s.idle()
		}
	})
	s.Deployment = s.at(t, chain.AWSURL())
	cfg := s.AWS
	s.sqs, s.lambda, s.cloudwatch, s.events = sqs.NewFromConfig(cfg), lambda.NewFromConfig(cfg), cloudwatch.NewFromConfig(cfg), eventbridge.NewFromConfig(cfg)
	s.dynamodb, s.sns = dynamodb.NewFromConfig(cfg), sns.NewFromConfig(cfg)
	return s
}

// at is the deployment as found at an endpoint.
func (s *stack) at(t *testing.T, endpoint string) *deployment.Deployment {
	t.Helper()
	d, err := deployment.Find(t.Context(), deployment.Options{Local: true, Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *stack) idle() {
	if c, ok := s.AWS.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
}

func (s *stack) examine(t *testing.T) doctor.Report {
	t.Helper()
	report, err := doctor.Examine(t.Context(), s.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// set changes attributes of a queue.
func (s *stack) set(url string, attributes map[string]string) {
	s.Helper()
	if _, err := s.sqs.SetQueueAttributes(s.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes}); err != nil {
		s.Fatal(err)
	}
}

// arn is that of a queue.
func (s *stack) arn(url string) string {
	return "arn:aws:sqs:us-east-1:000000000000:" + filepath.Base(url)
}

// update changes the mapping of the queue of independent tasks.
func (s *stack) update(change func(*lambda.UpdateEventSourceMappingInput)) {
	s.Helper()
	out, err := s.lambda.ListEventSourceMappings(s.Context(), &lambda.ListEventSourceMappingsInput{EventSourceArn: aws.String(s.arn(s.Tasks.URL))})
	if err != nil || len(out.EventSourceMappings) != 1 {
		s.Fatalf("got %+v, %v, want one mapping", out, err)
	}
	in := &lambda.UpdateEventSourceMappingInput{UUID: out.EventSourceMappings[0].UUID}
	change(in)
	if _, err := s.lambda.UpdateEventSourceMapping(s.Context(), in); err != nil {
		s.Fatal(err)
	}
	s.eventually("the change of the mapping", func() bool {
		m, err := s.lambda.GetEventSourceMapping(s.Context(), &lambda.GetEventSourceMappingInput{UUID: in.UUID})
		if err != nil {
			s.Fatal(err)
		}
		return *m.State == "Enabled" || *m.State == "Disabled"
	})
}

// alarming waits until the alarm on a dead-letter queue has gone off.
func (s *stack) alarming(name string) {
	s.Helper()
	s.eventually("the alarm "+name, func() bool {
		out, err := s.cloudwatch.DescribeAlarms(s.Context(), &cloudwatch.DescribeAlarmsInput{AlarmNames: []string{name}})
		if err != nil {
			s.Fatal(err)
		}
		return len(out.MetricAlarms) == 1 && out.MetricAlarms[0].StateValue == cwtypes.StateValueAlarm
	})
}

// eventually asks until something is so: the chain can only be asked.
func (s *stack) eventually(what string, ok func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	ask := time.NewTicker(20 * time.Millisecond)
	defer ask.Stop()
	for !ok() {
		select {
		case <-ask.C:
		case <-ctx.Done():
			s.Fatalf("waited in vain for %s", what)
		}
	}
}

// found is a finding without its texts.
type found struct {
	Check doctor.Check
	Part  string
}

// only fails unless the report has exactly these findings, each with all of its texts.
func only(t *testing.T, report doctor.Report, want ...found) {
	t.Helper()
	got := []found{}
	for _, f := range report.Findings {
		got = append(got, found{f.Check, f.Part})
		if f.Problem == "" || f.Promise == "" || f.Mend == "" || f.Severity == "" {
			t.Errorf("finding has not all that it should say: %+v", f)
		}
	}
	if diff := cmp.Diff(append([]found{}, want...), got); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, report.Findings)
	}
	if want := len(want) == 0; want != report.Sound() && !slices.ContainsFunc(report.NotMade, func(n doctor.NotMade) bool { return n.Why != doctor.NotServed }) {
		t.Errorf("sound: got %v, want %v", report.Sound(), want)
	}
}
