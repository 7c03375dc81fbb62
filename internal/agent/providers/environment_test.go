package providers_test

import (
	"testing"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/agent/providers"
	"agentworker/internal/awsclient"
	"agentworker/internal/config"
)

// The worker reaches Bedrock where the SDK's own variables say, also when another endpoint is set for all of AWS.
func TestBedrockAtAnotherEndpoint(t *testing.T) {
	s := modeltest.Start(t)
	for k, v := range map[string]string{
		"AWS_CA_BUNDLE": "", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "eu-west-1",
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": s.BedrockURL(),
	} {
		t.Setenv(k, v)
	}
	aws, err := awsclient.Load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := providers.New(t.Context(), config.Worker{Model: "bedrock:arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.some-model-v1:0"}, config.Keys{}, aws, discard)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Chat.Complete(t.Context(), chat.Request{Messages: []chat.Message{{Role: chat.RoleUser, Text: "hello"}}})
	if err != nil || got.Text != "Hello." {
		t.Fatalf("got %+v, %v, want an answer", got, err)
	}
	if calls := s.Calls(); len(calls) != 1 || calls[0].Model != "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.some-model-v1:0" {
		t.Errorf("got %+v, want one call with the profile's ARN", calls)
	}
}
