package model_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/model/modeltest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The providers' clients keep connections for their next call.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// secretKey must never show up in an error or a log.
const secretKey = "sk-MARKER-7f3a9c"

// awsAt is a configuration whose services are all at one address.
func awsAt(url string) aws.Config {
	return aws.Config{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("AKIAMARKER", "secret-MARKER", ""),
		BaseEndpoint: &url,
	}
}

// provider makes a model that is served by s.
type provider struct {
	name string
	make func(s *modeltest.Server, timeout time.Duration) chat.Model
}

var providers = []provider{
	{modeltest.OpenAI, func(s *modeltest.Server, timeout time.Duration) chat.Model {
		return model.NewOpenAI(model.OpenAIConfig{Model: "some-model", BaseURL: s.OpenAIURL(), Key: model.FixedKey(secretKey), Timeout: timeout})
	}},
	{modeltest.Bedrock, func(s *modeltest.Server, timeout time.Duration) chat.Model {
		return model.NewBedrock(model.BedrockConfig{Model: "some-model", AWS: awsAt(s.BedrockURL()), Timeout: timeout})
	}},
}

// fixture is a test of one provider, with a server of its own.
type fixture struct {
	*testing.T
	server   *modeltest.Server
	provider provider
	model    chat.Model
}

// forEach runs a test against both providers.
func forEach(t *testing.T, test func(fixture)) {
	t.Helper()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.Start(t)
			test(fixture{t, s, p, p.make(s, 0)})
		})
	}
}

func user(text string) chat.Request {
	return chat.Request{Messages: []chat.Message{{Role: chat.RoleUser, Text: text}}}
}
