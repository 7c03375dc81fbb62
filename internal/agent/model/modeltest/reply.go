package modeltest

import (
	"net/http"
	"time"

	"agentworker/internal/agent/chat"
)

// Reply is how the server answers one request.
type Reply struct {
	text  string
	calls []chat.ToolCall
	usage chat.Usage
	kind  kind
	delay time.Duration   // before the answer
	hold  <-chan struct{} // before the answer, until it is closed
	after time.Duration   // with throttled
	code  int             // with failed: the HTTP status
	said  string          // with refused and faults: what the service says about it
}

type kind int

const (
	answered  kind = iota
	length         // answered, but cut at the bound on its tokens
	filtered       // by the service's content filter
	declined       // by the model, in words
	throttled      // 429
	failed         // any HTTP status
	cut            // the connection, in the middle of the answer
	dropped        // the connection, without an answer
	malformed      // 200 with JSON that ends too early
	empty          // 200 with an answer that says nothing
)

// Say answers with text.
func Say(text string) Reply { return Reply{text: text} }

// CallTools asks for calls of tools. An input that is not JSON reaches an OpenAI client as it stands; the Bedrock API
// says then that the model has malformed the call.
func CallTools(calls ...chat.ToolCall) Reply { return Reply{calls: calls} }

// CallToolsCut is [CallTools] where the bound on the answer's tokens was reached in the middle of the last call.
func CallToolsCut(calls ...chat.ToolCall) Reply { return Reply{calls: calls, kind: length} }

// SayLength answers with text that ends where the bound on the answer's tokens was reached.
func SayLength(text string) Reply { return Reply{text: text, kind: length} }

// Filter lets the service's content filter intervene.
func Filter() Reply { return Reply{kind: filtered} }

// Decline lets the model refuse in words. Bedrock has no form of its own for that: the content filter stands for it.
func Decline(text string) Reply { return Reply{kind: declined, said: text} }

// Throttle answers 429; after is the delay in the header Retry-After, in whole seconds, none when it is 0.
func Throttle(after time.Duration) Reply { return Reply{kind: throttled, after: after} }

// Fail answers with an HTTP status of 400 or more and the service's words.
func Fail(status int, said string) Reply { return Reply{kind: failed, code: status, said: said} }

// Deny answers as for a key or a role that is not let in.
func Deny(said string) Reply { return Fail(http.StatusForbidden, said) }

// Cut begins an answer and closes the connection in the middle of it.
func Cut() Reply { return Reply{kind: cut, text: "The beginning of an answer"} }

// Drop closes the connection without an answer.
func Drop() Reply { return Reply{kind: dropped} }

// Malformed answers 200 with JSON that ends too early.
func Malformed() Reply { return Reply{kind: malformed} }

// Empty answers 200 with an answer that says nothing and calls nothing.
func Empty() Reply { return Reply{kind: empty} }

// Using says how many tokens the call has cost; otherwise the server counts one for four bytes.
func (r Reply) Using(input, output int) Reply {
	r.usage = chat.Usage{InputTokens: input, OutputTokens: output}
	return r
}

// Slowly answers after d, or not at all when the client has gone by then.
func (r Reply) Slowly(d time.Duration) Reply { r.delay = d; return r }

// Held answers once release is closed, or not at all when the client has gone by then.
func (r Reply) Held(release <-chan struct{}) Reply { r.hold = release; return r }
