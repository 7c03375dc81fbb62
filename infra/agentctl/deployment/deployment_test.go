package deployment_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentworker/infra/agentctl/deployment"
	"agentworker/internal/emulator/cloudformation"
	"agentworker/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outputs has a value for each output that a stack must have.
func outputs() []cloudformation.Output {
	var all []cloudformation.Output
	for _, key := range []string{
		topology.OutputAPIURL, topology.OutputTableName, topology.OutputTopicARN, topology.OutputQueueURL,
		topology.OutputDeadLetterURL, topology.OutputOrderedQueueURL, topology.OutputOrderedDeadLetterURL,
	} {
		all = append(all, cloudformation.Output{Key: key, Value: "the " + key})
	}
	return all
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// account is an environment that leads to no account but the one at endpoint.
func account(t *testing.T, endpoint string, more ...string) {
	t.Helper()
	pairs := append([]string{
		"AWS_ENDPOINT_URL", endpoint, "AWS_CONFIG_FILE", os.DevNull, "AWS_SHARED_CREDENTIALS_FILE", os.DevNull, "AWS_PROFILE", "",
		"AWS_EC2_METADATA_DISABLED", "true", "AWS_ACCESS_KEY_ID", "id", "AWS_SECRET_ACCESS_KEY", "secret", "AWS_SESSION_TOKEN", "",
		"AWS_REGION", "eu-west-1", "AWS_DEFAULT_REGION", "", "AWS_PORT", "", "AWS_MAX_ATTEMPTS", "1",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "", "AWS_WEB_IDENTITY_TOKEN_FILE", "",
	}, more...)
	for i := 0; i < len(pairs); i += 2 {
		t.Setenv(pairs[i], pairs[i+1])
	}
}

func TestAStackIsFoundByItsOutputs(t *testing.T) {
	stacks := cloudformation.New(cloudformation.Config{})
	for _, stage := range []string{"dev", "prod", topology.LocalStage} {
		stacks.Put(cloudformation.Stack{Name: topology.StackName(stage), Status: cloudformation.CreateComplete, Outputs: outputs()})
	}
	var region string
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		region = strings.Split(r.Header.Get("Authorization"), "/")[2]
		stacks.ServeHTTP(w, r)
	}))
	for _, c := range []struct {
		what         string
		options      deployment.Options
		environment  []string
		name, region string
	}{
		{"nothing said", deployment.Options{}, nil, "agentworker-dev", "eu-west-1"},
		{"stage and region", deployment.Options{Stage: "prod", Region: "us-west-2"}, nil, "agentworker-prod", "us-west-2"},
		{"local, by the endpoint", deployment.Options{Local: true, Stage: "prod", Endpoint: url}, []string{"AWS_ENDPOINT_URL", "http://127.0.0.1:1"}, "agentworker-local", "us-east-1"},
		{"local, by AWS_ENDPOINT_URL", deployment.Options{Local: true}, []string{"AWS_PORT", "1"}, "agentworker-local", "us-east-1"},
		{"local, by AWS_PORT", deployment.Options{Local: true}, []string{"AWS_ENDPOINT_URL", "", "AWS_PORT", url[strings.LastIndex(url, ":")+1:]}, "agentworker-local", "us-east-1"},
		{"local, without credentials and under a profile that is not there", deployment.Options{Local: true}, []string{"AWS_PROFILE", "absent", "AWS_ACCESS_KEY_ID", ""}, "agentworker-local", "us-east-1"},
	} {
		t.Run(c.what, func(t *testing.T) {
			account(t, url, c.environment...)
			got, err := deployment.Find(t.Context(), c.options)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != c.name || got.Local != c.options.Local || region != c.region || got.AWS.Region != c.region {
				t.Errorf("got %s (local: %v) in %s, asked in %s, want %s in %s", got.Name, got.Local, got.AWS.Region, region, c.name, c.region)
			}
			for have, want := range map[string]string{
				got.APIURL: "ApiUrl", got.Table: "TableName", got.TopicARN: "TopicArn", got.Tasks.URL: "QueueUrl", got.Ordered.URL: "OrderedQueueUrl",
				got.Tasks.DeadLetterURL: "DeadLetterQueueUrl", got.Ordered.DeadLetterURL: "OrderedDeadLetterQueueUrl",
			} {
				if have != "the "+want {
					t.Errorf("got %q for the output %s", have, want)
				}
			}
		})
	}
}

// refuses is an AWS that answers every call with an error.
func refuses(status int, code, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, code, message)
	})
}

func TestWhyThereIsNoStackIsSaidInASentence(t *testing.T) {
	half := cloudformation.New(cloudformation.Config{})
	half.Put(cloudformation.Stack{Name: "agentworker-local", Status: cloudformation.CreateInProgress})
	half.Put(cloudformation.Stack{Name: "agentworker-broken", Status: "ROLLBACK_COMPLETE"})
	half.Put(cloudformation.Stack{Name: "agentworker-old", Status: cloudformation.CreateComplete, Outputs: outputs()[:6]})
	local, stage := deployment.Options{Local: true}, deployment.Options{Stage: "old"}
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, c := range []struct {
		what        string
		options     deployment.Options
		aws         http.Handler // nil: nobody
		environment []string
		want        []string
	}{
		{"chain not running", local, nil, nil, []string{"nothing answers at " + closed.URL, "make run"}},
		{"chain still starting", local, half, nil, []string{"agentworker-local has no outputs yet", "CREATE_IN_PROGRESS"}},
		{"something else in the chain's place", local, http.NotFoundHandler(), nil, []string{"is not the local chain (what it says", "AWS_PORT"}},
		{"another AWS in the chain's place", local, refuses(400, "InvalidAction", "no"), nil, []string{"is not the local chain (InvalidAction)", "AWS_PORT"}},
		{"AWS without the local stack", local, refuses(400, "ValidationError", "Stack with id agentworker-local does not exist"), nil, []string{"has no stack agentworker-local", "make run"}},
		{"no such stack", deployment.Options{Stage: "prod", Region: "us-west-2"}, half, nil, []string{"no stack agentworker-prod in us-west-2", "--stage", "--region", "--local"}},
		{"deployment failed", deployment.Options{Stage: "broken"}, half, nil, []string{"agentworker-broken has no outputs, its status is ROLLBACK_COMPLETE", "describe-stack-events", "deploy it again"}},
		{"an output is missing", stage, half, nil, []string{"agentworker-old has no output OrderedDeadLetterQueueUrl", "deploy it again"}},
		{"no connection", stage, nil, nil, []string{"no connection to " + closed.URL}},
		{"no credentials", stage, half, []string{"AWS_ACCESS_KEY_ID", "", "AWS_SECRET_ACCESS_KEY", ""}, []string{"no AWS credentials", "aws sso login", "AWS_PROFILE", "--local"}},
		{"no region", stage, half, []string{"AWS_REGION", ""}, []string{"--region", "AWS_REGION"}},
		{"profile that is not there", stage, half, []string{"AWS_PROFILE", "absent"}, []string{"the AWS configuration cannot be used", "absent"}},
		{"expired token", stage, refuses(403, "ExpiredToken", "The security token included in the request is expired"), nil, []string{"credentials have expired", "aws sso login"}},
		{"wrong clock", stage, refuses(400, "RequestExpired", "Request has expired"), nil, []string{"too old", "clock"}},
		{"unknown key", stage, refuses(403, "InvalidClientTokenId", "no"), nil, []string{"does not accept the credentials (InvalidClientTokenId)"}},
		{"permission missing", stage, refuses(403, "AccessDenied", "User x is not authorized to perform: cloudformation:DescribeStacks"), nil, []string{"may not do this", "cloudformation:DescribeStacks"}},
		{"something else", stage, refuses(400, "Odd", "odd"), nil, []string{"agentworker-old cannot be looked up", "Odd"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			url := closed.URL
			if c.aws != nil {
				url = serve(t, c.aws)
			}
			account(t, url, c.environment...)
			began := time.Now()
			d, err := deployment.Find(t.Context(), c.options)
			var unreachable *deployment.UnreachableError
			if !errors.As(err, &unreachable) {
				t.Fatalf("got %+v, %v, want an UnreachableError", d, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") || time.Since(began) > 10*time.Second {
				t.Errorf("it took %v and says %q, want one line soon", time.Since(began), err)
			}
		})
	}
}

// The names of the outputs are those of the template that is deployed.
func TestTheDeployedStackHasTheOutputs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	var template struct{ Outputs map[string]json.RawMessage }
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	for _, o := range outputs() {
		if template.Outputs[o.Key] == nil {
			t.Errorf("the template has no output %s", o.Key)
		}
	}
}
