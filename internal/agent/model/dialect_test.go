package model_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
	"agentworker/internal/task"
)

// askRaw asks a server of OpenAI's chat completions that gives just this answer.
func askRaw(t *testing.T, status int, header http.Header, body string) (chat.Response, error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	m := model.NewOpenAI(model.OpenAIConfig{Model: "some-model", BaseURL: s.URL + "/v1", Key: model.FixedKey(secretKey)})
	return m.Complete(t.Context(), user("hello"))
}

func TestAnswersOfOtherServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ body, want string }{
		"as little as possible": {`{"choices":[{"message":{"content":"Hello."}}]}`, "Hello."},
		"null members":          {`{"choices":[{"message":{"content":"Hello.","tool_calls":null,"function_call":null,"refusal":null},"finish_reason":null}],"usage":null}`, "Hello."},
		"thoughts beside":       {`{"choices":[{"message":{"content":"Hello.","reasoning_content":"hm","reasoning":"hm"},"finish_reason":"stop"}]}`, "Hello."},
		"content in parts": {`{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},` +
			`{"type":"text","text":"Hel"},{"type":"text","text":"lo."}]},"finish_reason":"stop"}]}`, "Hello."},
		"a reason of its own": {`{"choices":[{"message":{"content":"Hello."},"finish_reason":"eos_token"}]}`, "Hello."},
		"several choices":     {`{"choices":[{"message":{"content":"Hello."}},{"index":1,"message":{"content":"Bye."}}]}`, "Hello."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := askRaw(t, 200, nil, tt.body)
			if err != nil || got.Text != tt.want || got.Stop != chat.StopEnd {
				t.Errorf("got %+v, %v, want the text %q", got, err, tt.want)
			}
		})
	}
}

// Servers other than OpenAI's give errors in forms of their own, some of them with status 200.
func TestErrorsOfOtherServers(t *testing.T) {
	t.Parallel()
	const permanent, retry = true, false
	long := "This model's maximum context length is 4096 tokens."
	for name, tt := range map[string]struct {
		status    int
		body      string
		code      string
		permanent bool
		says      string
	}{
		"flat":                   {400, `{"object":"error","message":"` + long + `","type":"BadRequestError","param":null,"code":400}`, "MODEL_INPUT_TOO_LONG", permanent, long},
		"flat, another":          {400, `{"object":"error","message":"no such role","code":400}`, "MODEL_REQUEST_INVALID", permanent, "no such role"},
		"a word":                 {422, `{"error":"Input validation error: no messages","error_type":"validation"}`, "MODEL_REQUEST_INVALID", permanent, "no messages"},
		"a word, not let in":     {401, `{"error":"unauthorized"}`, "MODEL_ACCESS_DENIED", permanent, "unauthorized"},
		"detail":                 {503, `{"detail":"the model is being loaded"}`, "MODEL_UNAVAILABLE", retry, "the model is being loaded"},
		"the key in it":          {401, `{"detail":"unknown key ` + secretKey + `"}`, "MODEL_ACCESS_DENIED", permanent, "unknown key [API key]"},
		"page of a proxy":        {502, `<html><body>Bad Gateway</body></html>`, "MODEL_UNAVAILABLE", retry, "HTTP status 502"},
		"page with 200":          {200, `<html><body>Sign in</body></html>`, "MODEL_BAD_ANSWER", retry, "not what the API promises"},
		"a stream":               {200, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: [DONE]\n\n", "MODEL_BAD_ANSWER", retry, "not what the API promises"},
		"nothing with 200":       {200, ``, "MODEL_BAD_ANSWER", retry, "not what the API promises"},
		"200, throttled":         {200, `{"error":{"message":"Rate limit exceeded","code":429}}`, "MODEL_THROTTLED", retry, "Rate limit exceeded"},
		"200, too long":          {200, `{"object":"error","message":"` + long + `","code":400}`, "MODEL_INPUT_TOO_LONG", permanent, long},
		"200, no status":         {200, `{"error":{"message":"something broke","code":"oops"}}`, "MODEL_BAD_ANSWER", retry, "something broke"},
		"context size":           {400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it"}}`, "MODEL_INPUT_TOO_LONG", permanent, "context size"},
		"no resources":           {200, `{"choices":[{"message":{"content":"Half an"},"finish_reason":"insufficient_system_resource"}]}`, "MODEL_UNAVAILABLE", retry, "broke off"},
		"error in the middle":    {200, `{"choices":[{"message":{"content":"Half an"},"finish_reason":"error"}]}`, "MODEL_UNAVAILABLE", retry, "broke off"},
		"aborted":                {200, `{"choices":[{"message":{"content":"Half an"},"finish_reason":"abort"}]}`, "MODEL_UNAVAILABLE", retry, "broke off"},
		"thoughts to the limit":  {200, `{"choices":[{"message":{"content":null,"reasoning_content":"hm"},"finish_reason":"length"}]}`, "MODEL_ANSWER_CUT", permanent, "before it said anything"},
		"an endless answer":      {200, `{"choices":[{"message":{"content":"` + strings.Repeat("x", 17<<20), "MODEL_BAD_ANSWER", retry, "not what the API promises"},
		"an endless error":       {500, `{"error":{"message":"` + strings.Repeat("x", 1<<20) + `"}}`, "MODEL_UNAVAILABLE", retry, "xxx"},
		"an endless other error": {500, `{"message":"` + strings.Repeat("x", 1<<20) + `"}`, "MODEL_UNAVAILABLE", retry, "HTTP status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := askRaw(t, tt.status, nil, tt.body)
			if err == nil {
				t.Fatalf("got %.80q, want an error", got.Text)
			}
			failure := task.FailureOf(err)
			if failure.Code != tt.code || task.IsPermanent(err) != tt.permanent || !strings.Contains(failure.Message, tt.says) {
				t.Errorf("got %+v, permanent %t, want code %s, permanent %t, and the words %q", failure, task.IsPermanent(err), tt.code, tt.permanent, tt.says)
			}
			if strings.Contains(err.Error(), secretKey) {
				t.Errorf("the key stands in %q", err)
			}
		})
	}
}

func TestDelayOfAnErrorInAnotherForm(t *testing.T) {
	t.Parallel()
	_, err := askRaw(t, 429, http.Header{"Retry-After": {"7"}}, `{"detail":"slower"}`)
	if d, ok := task.Delay(err); d != 7*time.Second || !ok || !strings.HasSuffix(err.Error(), ": slower") {
		t.Errorf("got %v, %t, %v, want 7 s and the server's words", d, ok, err)
	}
}

func TestServerWithAnUnknownCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	_, err := model.NewOpenAI(model.OpenAIConfig{Model: "some-model", BaseURL: s.URL + "/v1"}).Complete(t.Context(), user("hello"))
	if task.FailureOf(err).Code != "MODEL_UNAVAILABLE" || task.IsPermanent(err) || !strings.HasSuffix(err.Error(), "its certificate is not trusted") {
		t.Errorf("got %v, want MODEL_UNAVAILABLE that says so", err)
	}
}

// A kind of block that the SDK does not know yet must not make the one before it count twice: a tool would be called twice.
func TestBlocksOfBedrockThatAreNotKnown(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"output":{"message":{"role":"assistant","content":[{"new":{}},{"reasoningContent":{"reasoningText":{"text":"hm"}}},`+
			`{"text":"Hi"},{"new":{}},{"new":{}},{"text":"Hi"},{"toolUse":{"toolUseId":"a","name":"t","input":{}}},{"new":{}}]}},"stopReason":"tool_use"}`)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	got, err := model.NewBedrock(model.BedrockConfig{Model: "some-model", AWS: awsAt(s.URL)}).Complete(t.Context(), user("hello"))
	if err != nil || got.Text != "HiHi" || len(got.ToolCalls) != 1 {
		t.Errorf("got %+v, %v, want each text and the call once", got, err)
	}
}
