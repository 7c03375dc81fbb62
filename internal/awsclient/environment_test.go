package awsclient_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/awsclient"
)

// setEnvironment makes an environment of AWS's variables that are given, in pairs, and no others.
func setEnvironment(t *testing.T, pairs ...string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value) // for the test's end
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		t.Setenv(pairs[i], pairs[i+1])
	}
}

var lambda = []string{"AWS_REGION", "eu-west-1", "AWS_ACCESS_KEY_ID", "id", "AWS_SECRET_ACCESS_KEY", "secret", "AWS_SESSION_TOKEN", "token"}

func load(t *testing.T) aws.Config {
	t.Helper()
	c, err := awsclient.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheEnvironmentOfAFunction(t *testing.T) {
	setEnvironment(t, lambda...)
	c := load(t)
	got, err := c.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret", SessionToken: "token", Source: "environment"}
	if diff := cmp.Diff(want, got); c.Region != "eu-west-1" || diff != "" {
		t.Errorf("region %q, credentials (-want +got):\n%s", c.Region, diff)
	}
	if o := sqs.NewFromConfig(c).Options(); o.BaseEndpoint != nil || o.RetryMaxAttempts != 0 || o.Retryer.MaxAttempts() != 3 {
		t.Errorf("got endpoint %v and %d attempts, want AWS's own and the SDK's 3", aws.ToString(o.BaseEndpoint), o.Retryer.MaxAttempts())
	}
}

func TestEndpointsOfTheEnvironment(t *testing.T) {
	const all, one = "http://127.0.0.1:1", "http://127.0.0.1:2"
	for name, tt := range map[string]struct {
		set                    []string
		sqs, dynamodb, bedrock string
	}{
		"none":          {nil, "", "", ""},
		"all":           {[]string{"AWS_ENDPOINT_URL", all}, all, all, all},
		"one":           {[]string{"AWS_ENDPOINT_URL_SQS", one}, one, "", ""},
		"all, but one":  {[]string{"AWS_ENDPOINT_URL", all, "AWS_ENDPOINT_URL_DYNAMODB", one}, all, one, all},
		"of two words":  {[]string{"AWS_ENDPOINT_URL", all, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", one}, all, all, one},
		"to be ignored": {[]string{"AWS_ENDPOINT_URL", all, "AWS_ENDPOINT_URL_SQS", one, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"}, "", "", ""},
		"not ignored":   {[]string{"AWS_ENDPOINT_URL", all, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false"}, all, all, all},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, append(tt.set, lambda...)...)
			c := load(t)
			got := []string{
				aws.ToString(sqs.NewFromConfig(c).Options().BaseEndpoint),
				aws.ToString(dynamodb.NewFromConfig(c).Options().BaseEndpoint),
				aws.ToString(bedrockruntime.NewFromConfig(c).Options().BaseEndpoint),
			}
			if diff := cmp.Diff([]string{tt.sqs, tt.dynamodb, tt.bedrock}, got); diff != "" {
				t.Errorf("endpoints of SQS, DynamoDB and Bedrock (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	setEnvironment(t, append([]string{
		"AWS_MAX_ATTEMPTS", "7", "AWS_RETRY_MODE", "adaptive", "AWS_USE_FIPS_ENDPOINT", "true", "AWS_USE_DUALSTACK_ENDPOINT", "TRUE", "AWS_SDK_UA_APP_ID", "app",
	}, lambda...)...)
	o := dynamodb.NewFromConfig(load(t)).Options()
	if o.RetryMode != aws.RetryModeAdaptive || o.Retryer.MaxAttempts() != 7 || o.AppID != "app" ||
		o.EndpointOptions.UseFIPSEndpoint != aws.FIPSEndpointStateEnabled || o.EndpointOptions.UseDualStackEndpoint != aws.DualStackEndpointStateEnabled {
		t.Errorf("got mode %q, %d attempts, app %q, endpoints %+v", o.RetryMode, o.Retryer.MaxAttempts(), o.AppID, o.EndpointOptions)
	}
}

func TestWhatIsWrongWithTheEnvironment(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	setEnvironment(t,
		"AWS_ACCESS_KEY_ID", "MARKER", "AWS_MAX_ATTEMPTS", "MARKER", "AWS_RETRY_MODE", "MARKER", "AWS_CA_BUNDLE", empty,
		"AWS_USE_FIPS_ENDPOINT", "MARKER", "AWS_USE_DUALSTACK_ENDPOINT", "1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "yes")
	_, err := awsclient.Load()
	if err == nil {
		t.Fatal("no error for a hopeless environment")
	}
	for _, want := range []string{
		"AWS_REGION is not set",
		"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set",
		"AWS_MAX_ATTEMPTS is not a whole number of 1 or more",
		"AWS_RETRY_MODE is not standard or adaptive",
		"AWS_CA_BUNDLE holds no certificate",
		"AWS_USE_FIPS_ENDPOINT is not true or false",
		"AWS_USE_DUALSTACK_ENDPOINT is not true or false",
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is not true or false",
	} {
		if n := strings.Count(err.Error(), "\n"+want); n != 1 {
			t.Errorf("%q stands %d times, want once, in:\n%v", want, n, err)
		}
	}
	if strings.Contains(err.Error(), "MARKER") {
		t.Errorf("the message quotes a value: %v", err)
	}
}

// Credentials that are given over HTTP on this machine, as functions get them that start from a snapshot.
func TestCredentialsOfAContainer(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "pass" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"AccessKeyId":"id","SecretAccessKey":"secret","Token":"token","Expiration":"2199-01-01T00:00:00Z"}`))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("pass"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string][]string{
		"token":         {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "pass"},
		"token in file": {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, append(set, "AWS_REGION", "eu-west-1", "AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL)...)
			asked.Store(0)
			c := load(t)
			if asked.Load() != 0 {
				t.Error("credentials were asked for before they were needed")
			}
			for range 3 {
				got, err := c.Credentials.Retrieve(t.Context())
				if err != nil || got.AccessKeyID != "id" || got.SessionToken != "token" {
					t.Fatalf("got key %q, %v, want the server's", got.AccessKeyID, err)
				}
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("the server was asked %d times, want once", n)
			}
		})
	}
}

func TestCredentialsAreNotAskedForOverAnOpenNetwork(t *testing.T) {
	for endpoint, fine := range map[string]bool{
		"http://127.0.0.1:9001/credentials": true, "http://[::1]/": true, "http://169.254.170.2/x": true, "http://169.254.170.23/x": true,
		"http://[fd00:ec2::23]/x": true, "https://example.com/x": true,
		"http://example.com/x": false, "http://10.0.0.1/x": false, "http://169.254.169.254/x": false, "ftp://127.0.0.1/": false, "127.0.0.1": false, "http://": false,
	} {
		setEnvironment(t, "AWS_REGION", "eu-west-1", "AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint)
		if _, err := awsclient.Load(); (err == nil) != fine {
			t.Errorf("%s: got %v, want accepted %t", endpoint, err, fine)
		}
	}
}

// What the SDK sends through the client is read, as [awsclient.HTTPClient] has it.
func TestTheConfiguredClientReadsBodies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	setEnvironment(t, lambda...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, selfWriting{strings.NewReader("hello"), t})
	if err != nil {
		t.Fatal(err)
	}
	res, err := load(t).HTTPClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// A call goes where the environment says, signed with its key.
func TestACallGoesOut(t *testing.T) {
	var authorization string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"QueueUrl":"x"}`))
	}))
	t.Cleanup(server.Close)
	setEnvironment(t, append([]string{"AWS_ENDPOINT_URL_SQS", server.URL}, lambda...)...)
	if _, err := sqs.NewFromConfig(load(t)).GetQueueUrl(context.WithoutCancel(t.Context()), &sqs.GetQueueUrlInput{QueueName: aws.String("q")}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(authorization, "Credential=id/") || !strings.Contains(authorization, "/eu-west-1/sqs/") {
		t.Errorf("authorization is %q, want the key, region and service", authorization)
	}
}
