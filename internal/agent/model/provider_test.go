package model_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/task"
)

// texts is what must reach a model and come back unchanged.
var texts = map[string]string{
	"Chinese":         "什么是 LangGraph？它与智能体有何关系？",
	"emoji":           "👩🏽‍💻 🇨🇭 ❤️ \U0001F9E0",
	"right to left":   "ما هو نظام الطوابير؟ \u202Bעברית\u202C abc",
	"escapes":         "\"quoted\" \\ back \t tab \n line \r return </script> & < > \u2028\u2029 \u0000\u0001\u001f\u007f {\"a\":[1]} %s ${x}",
	"combining":       "e\u0301 ≠ é, \uFEFFa\u200Db",
	"200 KB":          strings.Repeat("界🙂x\n", 200_000/9),
	"beyond SQS":      "\uFFFE\uFFFF\uFFFD",
	"just white room": "a \u3000\u00A0 b",
}

func TestTextGoesThroughUnchanged(t *testing.T) {
	t.Parallel()
	forEach(t, func(f fixture) {
		t, s, m := f.T, f.server, f.model
		s.Respond(func(c modeltest.Call) modeltest.Reply {
			return modeltest.Say(c.Request.Messages[len(c.Request.Messages)-1].Text)
		})
		for name, text := range texts {
			r := chat.Request{System: "S " + text, Messages: []chat.Message{
				{Role: chat.RoleUser, Text: "earlier " + text}, {Role: chat.RoleAssistant, Text: "said " + text}, {Role: chat.RoleUser, Text: text},
			}}
			got, err := m.Complete(t.Context(), r)
			if err != nil || got.Text != text {
				t.Errorf("%s: got %.80q, %v, want %.80q", name, got.Text, err, text)
			}
			calls := s.Calls()
			asked := calls[len(calls)-1].Request
			if asked.System != r.System || !cmp.Equal(asked.Messages, r.Messages) {
				t.Errorf("%s: the server was asked otherwise:\n%.400s", name, cmp.Diff(r.Messages, asked.Messages))
			}
		}
	})
}

var weatherTool = chat.Tool{Name: "get_weather", Description: "Tells the weather.", Schema: jsontext.Value(`{"type":"object","properties":{"place":{"type":"string"},"days":{"maximum":9007199254740993}},"required":["place"]}`)}

// The same conversation with either provider: what is asked arrives alike, and what comes back has the same shape.
func TestConversationWithTools(t *testing.T) {
	t.Parallel()
	forEach(t, func(f fixture) {
		t, s, p, m := f.T, f.server, f.provider, f.model
		first := chat.ToolCall{ID: "call_1", Name: "get_weather", Input: jsontext.Value(`{"place":"北京 <&> \"x\" 🙂","days":9007199254740993,"exact":0.1000000000000000055,"list":[],"none":null}`)}
		second := chat.ToolCall{ID: "call_2", Name: "get_weather", Input: jsontext.Value(`{}`)}
		s.Converse(
			modeltest.CallTools(first, second).Using(100, 20),
			modeltest.Say("It rains.").Using(200, 30),
		)
		r := user("How is the weather?")
		r.System, r.Tools, r.MaxTokens, r.EffectKey = "Be brief.", []chat.Tool{weatherTool}, 77, "th-1.01J/model-1"

		got, err := m.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		want := chat.Response{ToolCalls: []chat.ToolCall{first, second}, Usage: chat.Usage{InputTokens: 100, OutputTokens: 20}, Model: p.name + ":some-model", Stop: chat.StopTools}
		if diff := cmp.Diff(canonical(want), canonical(got)); diff != "" {
			t.Fatalf("first answer (-want +got):\n%s", diff)
		}
		r.Messages = append(r.Messages,
			chat.Message{Role: chat.RoleAssistant, ToolCalls: got.ToolCalls},
			chat.Message{Role: chat.RoleTool, ToolCallID: "call_1", Text: `{"weather":"雨"}`},
			chat.Message{Role: chat.RoleTool, ToolCallID: "call_2", Text: "place is missing", ToolError: true})
		r.EffectKey = "th-1.01J/model-2"
		got, err = m.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		want = chat.Response{Text: "It rains.", Usage: chat.Usage{InputTokens: 200, OutputTokens: 30}, Model: p.name + ":some-model", Stop: chat.StopEnd}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("second answer (-want +got):\n%s", diff)
		}

		calls := s.Calls()
		if len(calls) != 2 || calls[0].EffectKey != "th-1.01J/model-1" || calls[1].EffectKey != "th-1.01J/model-2" {
			t.Errorf("got %d calls by keys %v, want one for each step", len(calls), s.CallsByKey())
		}
		asked := calls[1].Request
		if p.name == modeltest.OpenAI { // which has no mark for a tool's error but the text
			r.Messages[3].Text, r.Messages[3].ToolError = "Error: place is missing", false
		}
		if diff := cmp.Diff(canonicalRequest(r), canonicalRequest(asked)); diff != "" {
			t.Errorf("what the server was asked (-want +got):\n%s", diff)
		}
		if calls[1].Model != "some-model" {
			t.Errorf("model: got %q", calls[1].Model)
		}
	})
}

// canonical makes JSON comparable: members may come in another order, digits and text may not change.
func canonical(r chat.Response) chat.Response {
	r.ToolCalls = canonicalCalls(r.ToolCalls)
	return r
}

func canonicalCalls(calls []chat.ToolCall) (out []chat.ToolCall) {
	for _, c := range calls {
		c.Input = canonicalJSON(c.Input)
		out = append(out, c)
	}
	return out
}

func canonicalJSON(v jsontext.Value) jsontext.Value {
	v = bytes.Clone(v)
	if err := v.Format(jsontext.ReorderRawObjects(true)); err != nil {
		panic(err)
	}
	return v
}

func canonicalRequest(r chat.Request) chat.Request {
	var messages []chat.Message
	for _, m := range r.Messages {
		m.ToolCalls = canonicalCalls(m.ToolCalls)
		messages = append(messages, m)
	}
	r.Messages = messages
	for i := range r.Tools {
		r.Tools[i].Schema = canonicalJSON(r.Tools[i].Schema)
	}
	return r
}

func TestFaultsBecomeOutcomes(t *testing.T) {
	t.Parallel()
	const permanent, retry = true, false
	tests := []struct {
		name      string
		reply     modeltest.Reply
		code      string
		permanent bool
		after     time.Duration // 0: none given
		says      string
	}{
		{"throttled", modeltest.Throttle(3 * time.Second), "MODEL_THROTTLED", retry, 3 * time.Second, "takes no more requests for the moment"},
		{"invalid", modeltest.Fail(400, "tokens must be positive"), "MODEL_REQUEST_INVALID", permanent, 0, "tokens must be positive"},
		{"too long", modeltest.Fail(400, "Input is too long for requested model."), "MODEL_INPUT_TOO_LONG", permanent, 0, "cannot read that much at once"},
		{"not let in", modeltest.Deny("You don't have access to the model with the specified model ID."), "MODEL_ACCESS_DENIED", permanent, 0, "does not let this worker in"},
		{"no such model", modeltest.Fail(404, "Could not resolve the foundation model."), "MODEL_NOT_FOUND", permanent, 0, "is not there"},
		{"filtered", modeltest.Filter(), "MODEL_REFUSED", permanent, 0, "refuses to answer"},
		{"declined", modeltest.Decline("I can't help with that."), "MODEL_REFUSED", permanent, 0, "I can't help with that."},
		{"length without text", modeltest.SayLength(""), chat.CodeCut, permanent, 0, "before it said anything"},
		{"length within a call", modeltest.CallToolsCut(chat.ToolCall{ID: "c", Name: "t", Input: jsontext.Value(`{"a":1}`)}), "MODEL_ANSWER_CUT", permanent, 0, "in the middle of a tool's input"},
		{"5xx", modeltest.Fail(500, "boom"), "MODEL_UNAVAILABLE", retry, 0, "did not answer"},
		{"overloaded", modeltest.Fail(503, "later"), "MODEL_UNAVAILABLE", retry, 0, "later"},
		{"model's own timeout", modeltest.Fail(408, "Model timed out."), "MODEL_TIMEOUT", retry, 0, "did not answer in time"},
		{"cut connection", modeltest.Cut(), "MODEL_UNAVAILABLE", retry, 0, "no usable connection"},
		{"no answer", modeltest.Drop(), "MODEL_UNAVAILABLE", retry, 0, "no usable connection"},
		{"malformed JSON", modeltest.Malformed(), "MODEL_BAD_ANSWER", retry, 0, "cannot be used"},
		{"empty", modeltest.Empty(), "MODEL_BAD_ANSWER", retry, 0, "empty"},
		{"blank", modeltest.Say(" \n"), "MODEL_BAD_ANSWER", retry, 0, "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			forEach(t, func(f fixture) {
				t, s, m := f.T, f.server, f.model
				s.Fault(tt.reply)
				got, err := m.Complete(t.Context(), user("hello"))
				if err == nil {
					t.Fatalf("got %+v, want an error", got)
				}
				failure := task.FailureOf(err)
				if failure.Code != tt.code || task.IsPermanent(err) != tt.permanent || !strings.Contains(failure.Message, tt.says) {
					t.Errorf("got %+v, permanent %t, want code %s, permanent %t, and the words %q", failure, task.IsPermanent(err), tt.code, tt.permanent, tt.says)
				}
				if d, ok := task.Delay(err); d != tt.after || ok != (tt.after > 0) {
					t.Errorf("delay: got %v, %t, want %v", d, ok, tt.after)
				}
				if n := len(s.Calls()); n != 1 {
					t.Errorf("the server was asked %d times, want once: the chain retries, not the client", n)
				}
				// The fault is over: the same model goes on.
				if got, err := m.Complete(t.Context(), user("hello")); err != nil || got.Text != "Hello." {
					t.Errorf("afterwards: got %+v, %v, want an answer", got, err)
				}
			})
		})
	}
}

func TestAnswerThatReachesItsLimitIsKept(t *testing.T) {
	t.Parallel()
	forEach(t, func(f fixture) {
		t, s, m := f.T, f.server, f.model
		s.Fault(modeltest.SayLength("The first half"))
		if got, err := m.Complete(t.Context(), user("hello")); err != nil || got.Text != "The first half" || got.Stop != chat.StopLength {
			t.Errorf("got %+v, %v, want the text, and that it is cut", got, err)
		}
	})
}

func TestCallTakesNoLongerThanItsLimit(t *testing.T) {
	t.Parallel()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := modeltest.Start(t)
			s.Fault(modeltest.Say("too late").Held(t.Context().Done()))
			_, err := p.make(s, 50*time.Millisecond).Complete(t.Context(), user("hello"))
			if failure := task.FailureOf(err); failure.Code != "MODEL_TIMEOUT" || task.IsPermanent(err) {
				t.Errorf("got %v with code %s, want MODEL_TIMEOUT and a retry", err, failure.Code)
			}
		})
	}
}

func TestTaskThatEndsTakesItsCallAlong(t *testing.T) {
	t.Parallel()
	forEach(t, func(f fixture) {
		t, s, m := f.T, f.server, f.model
		s.Fault(modeltest.Say("too late").Held(t.Context().Done()))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = s.Await(ctx, 1)
			cancel()
		}()
		_, err := m.Complete(ctx, user("hello"))
		if !errors.Is(err, context.Canceled) || task.FailureOf(err).Code != task.CodeFailed {
			t.Errorf("got %v, want the context's own error without a code of the model's", err)
		}
	})
}

func TestEffectKeyOfAnyFormIsSent(t *testing.T) {
	t.Parallel()
	forEach(t, func(f fixture) {
		t, s, m := f.T, f.server, f.model
		keys := []string{"ticket-TK-1.01JABC/model-1", "线程/step 🙂\r\nX-Evil: 1", strings.Repeat("k", 300)}
		for _, key := range keys {
			for range 2 {
				r := user("hello")
				r.EffectKey = key
				if _, err := m.Complete(t.Context(), r); err != nil {
					t.Errorf("key %.40q: %v", key, err)
				}
			}
		}
		got := s.CallsByKey()
		if len(got) != len(keys) || got[keys[0]] != 2 {
			t.Errorf("got %v, want %d keys twice each, and the plain one unchanged", got, len(keys))
		}
	})
}

// A model's output is not to be trusted: what is no JSON must neither break the checkpoint nor the conversation.
func TestToolInputThatIsNoJSON(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	m := providers[0].make(s, 0)
	for raw, want := range map[string]string{
		`{"place":`:            `"{\"place\":"`,
		`{"a":1,"a":2}`:        `"{\"a\":1,\"a\":2}"`,
		`"text"`:               `"\"text\""`,
		``:                     `{}`,
		`null`:                 `{}`,
		`[1]`:                  `[1]`,
		`{"big":1e400,"x":""}`: `{"big":1e400,"x":""}`,
	} {
		s.Converse(modeltest.CallTools(chat.ToolCall{ID: "c", Name: "get_weather", Input: jsontext.Value(raw)}), modeltest.Say("ok"))
		r := user("hello")
		r.Tools = []chat.Tool{weatherTool}
		got, err := m.Complete(t.Context(), r)
		if err != nil || len(got.ToolCalls) != 1 || string(got.ToolCalls[0].Input) != want {
			t.Errorf("arguments %s: got %+v, %v, want the input %s", raw, got, err, want)
			continue
		}
		r.Messages = append(r.Messages, chat.Message{Role: chat.RoleAssistant, ToolCalls: got.ToolCalls}, chat.Message{Role: chat.RoleTool, ToolCallID: "c", Text: "wrong", ToolError: true})
		if _, err := m.Complete(t.Context(), r); err != nil {
			t.Errorf("arguments %s, sent back: %v", raw, err)
		}
		calls := s.Calls()
		back := string(calls[len(calls)-1].Request.Messages[1].ToolCalls[0].Input)
		if raw != "" && raw != "null" && back != raw {
			t.Errorf("arguments %s went back as %s", raw, back)
		}
	}
}

func TestMalformedToolCallOfBedrockIsAnotherTry(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	s.Converse(modeltest.CallTools(chat.ToolCall{ID: "c", Name: "get_weather", Input: jsontext.Value(`{"place":`)}))
	r := user("hello")
	r.Tools = []chat.Tool{weatherTool}
	_, err := providers[1].make(s, 0).Complete(t.Context(), r)
	if task.FailureOf(err).Code != "MODEL_BAD_ANSWER" || task.IsPermanent(err) {
		t.Errorf("got %v, want MODEL_BAD_ANSWER and a retry", err)
	}
}

// A conversation can begin with one provider and go on with another.
func TestBedrockTakesWhatAnotherProviderLeft(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	r := user("hello")
	r.Tools = []chat.Tool{weatherTool}
	r.Messages = append(r.Messages,
		chat.Message{Role: chat.RoleAssistant, Text: " ", ToolCalls: []chat.ToolCall{{ID: "c", Name: "get_weather", Input: jsontext.Value(`"{broken"`)}}},
		chat.Message{Role: chat.RoleTool, ToolCallID: "c", Text: ""},
		chat.Message{Role: chat.RoleUser, Text: "go on"})
	if got, err := providers[1].make(s, 0).Complete(t.Context(), r); err != nil || got.Text != "Hello." {
		t.Errorf("got %+v, %v, want an answer", got, err)
	}
}
