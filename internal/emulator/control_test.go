package emulator_test

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/emulator"
)

func (r *running) lambda() *lambda.Client {
	return lambda.New(lambda.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(r.AWSURL()), Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
}

// update changes the mapping of the queue of independent tasks.
func (r *running) update(t *testing.T, change func(*lambda.UpdateEventSourceMappingInput)) {
	t.Helper()
	client := r.lambda()
	out, err := client.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{
		FunctionName: aws.String("worker"), EventSourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:agent-tasks"),
	})
	if err != nil || len(out.EventSourceMappings) != 1 {
		t.Fatalf("list: got %+v, %v, want one mapping", out, err)
	}
	in := &lambda.UpdateEventSourceMappingInput{UUID: out.EventSourceMappings[0].UUID}
	change(in)
	if _, err := client.UpdateEventSourceMapping(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, "the change of the mapping", func() bool {
		m, err := client.GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: in.UUID})
		if err != nil {
			t.Fatal(err)
		}
		return *m.State == "Enabled" || *m.State == "Disabled"
	})
}

// messages is how many are in a queue, in whatever state.
func (r *running) messages(t *testing.T, queue string) string {
	t.Helper()
	out, err := r.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: aws.String(r.AWSURL() + "/000000000000/" + queue), AttributeNames: []sqstypes.QueueAttributeName{"All"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

// A disabled mapping receives nothing; enabled again, it goes on with what has been left.
func TestAMappingIsDisabledAndEnabled(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.update(t, func(in *lambda.UpdateEventSourceMappingInput) { in.Enabled = aws.Bool(false) })
	a := r.submit(t, "/agent/query", `{"question":"What is a dead-letter queue?"}`)
	ordered := r.submit(t, "/agent/query", `{"question":"What is a dead-letter queue?","ordered":true}`)
	if v := r.ends(t, ordered.TaskID); v.Status != "succeeded" { // the other mapping works meanwhile
		t.Errorf("ordered task: got %s, want succeeded", v.Status)
	}
	var v taskView
	if r.call(t, http.MethodGet, "/agent/tasks/"+a.TaskID, "", &v); v.Status != "queued" || r.messages(t, "agent-tasks") != "1+0" {
		t.Errorf("with a disabled mapping: got %s and %s messages, want queued and 1+0", v.Status, r.messages(t, "agent-tasks"))
	}
	r.update(t, func(in *lambda.UpdateEventSourceMappingInput) { in.Enabled = aws.Bool(true) })
	if v := r.ends(t, a.TaskID); v.Status != "succeeded" || v.Attempts != 1 {
		t.Errorf("enabled again: got %s after %d attempts, want succeeded after 1", v.Status, v.Attempts)
	}
}

// A function whose reserved concurrency is 0 does not run; without it, it runs again.
func TestReservedConcurrencyOfZero(t *testing.T) {
	t.Parallel()
	r := start(t)
	client, name := r.lambda(), aws.String("submit")
	if _, err := client.PutFunctionConcurrency(t.Context(), &lambda.PutFunctionConcurrencyInput{FunctionName: name, ReservedConcurrentExecutions: aws.Int32(0)}); err != nil {
		t.Fatal(err)
	}
	if got := r.call(t, http.MethodGet, "/healthz", "", nil); got < 500 {
		t.Errorf("with a reserved concurrency of 0: got %d, want it throttled", got)
	}
	if out, err := client.GetFunctionConcurrency(t.Context(), &lambda.GetFunctionConcurrencyInput{FunctionName: name}); err != nil || out.ReservedConcurrentExecutions == nil || *out.ReservedConcurrentExecutions != 0 {
		t.Errorf("got %+v, %v, want 0 reserved", out, err)
	}
	if _, err := client.DeleteFunctionConcurrency(t.Context(), &lambda.DeleteFunctionConcurrencyInput{FunctionName: name}); err != nil {
		t.Fatal(err)
	}
	if got := r.call(t, http.MethodGet, "/healthz", "", nil); got != http.StatusOK {
		t.Errorf("without it: got %d, want 200", got)
	}
}

// What a person's own key is, nobody is told.
func TestKeysAreNotTold(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *emulator.Config) { c.WorkerEnv = []string{"OPENAI_API_KEY=MARKER", "MODEL_TIMEOUT=30s"} })
	out, err := r.lambda().GetFunctionConfiguration(t.Context(), &lambda.GetFunctionConfigurationInput{FunctionName: aws.String("worker")})
	if err != nil {
		t.Fatal(err)
	}
	v := out.Environment.Variables
	if _, told := v["OPENAI_API_KEY"]; told || v["AWS_SECRET_ACCESS_KEY"] != "" || v["MODEL_TIMEOUT"] != "30s" || v["MAX_RECEIVE_COUNT"] != "5" {
		t.Errorf("got %v, want neither key, and what the worker really has", v)
	}
}
