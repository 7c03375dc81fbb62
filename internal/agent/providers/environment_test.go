package providers_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/agent/providers"
	"agentworker/internal/awsclient"
	"agentworker/internal/config"
	"agentworker/internal/task"
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

// Model and knowledge base trust the certificates of AWS_CA_BUNDLE, as the clients of table and queue do.
func TestCertificatesOfTheEnvironment(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"AWS_CA_BUNDLE": bundle, "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "eu-west-1",
		"AWS_ENDPOINT_URL": server.URL, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "",
	} {
		t.Setenv(k, v)
	}
	aws, err := awsclient.Load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := providers.New(t.Context(), config.Worker{Model: "bedrock:some-model", Retriever: "kb:ABCDEFGHIJ"}, config.Keys{}, aws, discard)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Chat.Complete(t.Context(), chat.Request{Messages: []chat.Message{{Role: chat.RoleUser, Text: "hello"}}})
	if got := task.FailureOf(err); got.Code != "MODEL_ACCESS_DENIED" {
		t.Errorf("model: got %+v, want the server's own refusal", got)
	}
	_, err = p.Retriever.Retrieve(t.Context(), "hello", 1)
	if got := task.FailureOf(err); got.Code != "RETRIEVAL_ACCESS_DENIED" {
		t.Errorf("knowledge base: got %+v, want the server's own refusal", got)
	}
}
