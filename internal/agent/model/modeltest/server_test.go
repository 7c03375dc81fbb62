package modeltest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentworker/internal/agent/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The server must be as strict as the real ones, or tests against it prove nothing.
func TestMalformedConversationsAreRefused(t *testing.T) {
	t.Parallel()
	const openAI, bedrock = "/v1/chat/completions", "/model/some-model/converse"
	const tools = `"toolConfig":{"tools":[{"toolSpec":{"name":"t","inputSchema":{"json":{}}}}]},`
	tests := map[string]struct{ path, body, want string }{
		"OpenAI: fine":               {openAI, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `"content":"Hello."`},
		"OpenAI: no JSON":            {openAI, `{`, "could not parse"},
		"OpenAI: unknown member":     {openAI, `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_toks":1}`, "could not parse"},
		"OpenAI: no model":           {openAI, `{"messages":[{"role":"user","content":"hi"}]}`, "model parameter"},
		"OpenAI: nothing":            {openAI, `{"model":"m","messages":[]}`, "at least one message"},
		"OpenAI: null content":       {openAI, `{"model":"m","messages":[{"role":"user","content":null}]}`, "got null"},
		"OpenAI: unknown role":       {openAI, `{"model":"m","messages":[{"role":"robot","content":"hi"}]}`, "unknown role"},
		"OpenAI: call without reply": {openAI, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]},{"role":"user","content":"hi"}]}`, "must be followed by tool messages"},
		"OpenAI: reply without call": {openAI, `{"model":"m","messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}`, "must be a response"},
		"OpenAI: tool name":          {openAI, `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"a b","parameters":{}}}]}`, "does not match"},

		"Bedrock: fine":               {bedrock, `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`, `"text":"Hello."`},
		"Bedrock: no JSON":            {bedrock, `{`, "not valid"},
		"Bedrock: begins with answer": {bedrock, `{"messages":[{"role":"assistant","content":[{"text":"hi"}]}]}`, "alternate"},
		"Bedrock: twice the user":     {bedrock, `{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"user","content":[{"text":"b"}]}]}`, "alternate"},
		"Bedrock: ends with answer":   {bedrock, `{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"assistant","content":[{"text":"b"}]}]}`, "prefill"},
		"Bedrock: blank text":         {bedrock, `{"messages":[{"role":"user","content":[{"text":" \n"}]}]}`, "blank"},
		"Bedrock: no content":         {bedrock, `{"messages":[{"role":"user","content":[]}]}`, "empty"},
		"Bedrock: blank system":       {bedrock, `{"system":[{"text":""}],"messages":[{"role":"user","content":[{"text":"hi"}]}]}`, "blank"},
		"Bedrock: use without tools":  {bedrock, `{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"c","name":"t","input":{}}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"c","content":[{"text":"x"}]}}]}]}`, "toolConfig field must be defined"},
		"Bedrock: input no object":    {bedrock, `{` + tools + `"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"c","name":"t","input":"x"}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"c","content":[{"text":"x"}]}}]}]}`, "json object"},
		"Bedrock: use without result": {bedrock, `{` + tools + `"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"c","name":"t","input":{}}}]},{"role":"user","content":[{"text":"x"}]}]}`, "Expected toolResult"},
		"Bedrock: result without use": {bedrock, `{` + tools + `"messages":[{"role":"user","content":[{"toolResult":{"toolUseId":"c","content":[{"text":"x"}]}}]}]}`, "exceed"},
		"Bedrock: metadata":           {bedrock, `{"requestMetadata":{"k":"线程"},"messages":[{"role":"user","content":[{"text":"hi"}]}]}`, "requestMetadata"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.Start(t)
			status, body := post(t, s.BedrockURL()+tt.path, tt.body)
			fine := strings.HasSuffix(name, "fine")
			if !strings.Contains(body, tt.want) || (status == http.StatusOK) != fine {
				t.Errorf("got %d %s, want %q", status, body, tt.want)
			}
			if calls := s.Calls(); len(calls) != 1 || (calls[0].Problem == "") != fine {
				t.Errorf("ledger: got %+v", calls)
			}
		})
	}
}

func TestUnsignedRequestIsRefused(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	const ask = `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`
	if status, body := postAs(t, "Bearer x", s.BedrockURL()+"/model/m/converse", ask); status != http.StatusForbidden {
		t.Errorf("got %d %s, want 403", status, body)
	}
}

// A request that is made again after a crash gets the same reply, and a fault is gone once it has struck.
func TestScript(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	s.Converse(modeltest.Say("first"))
	s.Fault(modeltest.Fail(500, "boom"))
	const ask = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	const beyond = `{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"first"}]}`
	for i, tt := range []struct {
		body, want string
		status     int
	}{{ask, "boom", 500}, {ask, "first", 200}, {ask, "first", 200}, {beyond, "the script has 1 replies", 400}} {
		if status, body := post(t, s.OpenAIURL()+"/chat/completions", tt.body); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("request %d: got %d %s, want %d %s", i, status, body, tt.status, tt.want)
		}
	}
	calls := s.Calls()
	if len(calls) != 4 || !calls[0].Faulty || calls[1].Faulty {
		t.Errorf("ledger: got %+v, want four calls, the first faulty", calls)
	}
	if err := s.Await(t.Context(), 4); err != nil {
		t.Errorf("await what has arrived: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Await(ended, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("await what does not come: got %v", err)
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	return postAs(t, "AWS4-HMAC-SHA256 Credential=x", url, body)
}

func postAs(t *testing.T, authorization, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", authorization)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}
