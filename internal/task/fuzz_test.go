package task_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/task"
)

// FuzzDecode: whatever is on the queue, there is an id to record it under, a permanent error with a code or a message
// that can be sent again as it is.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		``, ` `, `hello`, `null`, `-1`, `[]`, `{}`, `{"task"`, `{"task":"any"}{}`, "\uFEFF{}",
		`{"task":"rag_query","question":"什么是 LangGraph？"}`,
		`{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`,
		`{"task":"any","task_id":"th-1.` + ulidA + `","thread_id":"th-1","value":{"a":[1e400,-0.0,"\ufffe"]}}`,
		`{"task":"any","task_id":"th-1.` + strings.ToLower(ulidA) + `"}`,
		`{"task":"any","thread_id":"a#b"}`, `{"task":"any","thread_id":"../x"}`, `{"task":"any","thread_id":5}`,
		`{"task":"any","value":1,"value":2}`, `{"task":"any","VALUE":1,"value":2}`,
		"{\"task\":\"any\",\"value\":\"\uFFFE\uFFFF\xff\"}", `{"task":"any","value":"\ud800"}`,
		`{"task":"careless","value":"#"}`, `{"task":"panicking"}`, `{"task":"order_pizza","thread_id":"t"}`,
		`{"task":"rag_query","question":"x","topics":1e2,"since":"2026-03-01T12:00:00Z","filter":{"lang":[]}}`,
	} {
		f.Add([]byte(body))
	}
	for _, inner := range []string{`{\"task\":\"any\"}`, `{\"task\":\"any\",\"task_id\":\"th-1.` + ulidA + `\"}`, `hello`} {
		for _, topic := range []string{allowedTopic, "arn:aws:sns:us-east-1:1:other"} {
			f.Add([]byte(`{"Type":"Notification","MessageId":"m","TopicArn":"` + topic + `","Message":"` + inner + `","Timestamp":"2026-11-29T12:00:00.000Z"}`))
		}
	}
	r := newRegistry(f).AllowTopics(allowedTopic)
	codes := []string{task.CodeMalformed, task.CodeUnknownTask, task.CodeTopicNotAllowed, task.CodeInvalidField, task.CodePanic}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := r.Decode(body, messageID, noon)
		if id, idErr := task.ParseID(string(m.ID)); idErr != nil || id.Thread() != m.Thread {
			t.Fatalf("id: got %q, thread %q (%v), want a task id and its thread", m.ID, m.Thread, idErr)
		}
		if again, _ := r.Decode(body, messageID, noon); again.ID != m.ID {
			t.Fatalf("redelivered: got id %q, want %q", again.ID, m.ID)
		}
		if err != nil {
			got := task.FailureOf(err)
			if !task.IsPermanent(err) || !slices.Contains(codes, got.Code) {
				t.Fatalf("got %+v, permanent: %t, want a permanent error with one of %v", got, task.IsPermanent(err), codes)
			}
			if errors.As(err, new(task.FieldErrors)) != (got.Code == task.CodeInvalidField) {
				t.Fatalf("got %s with error %#v, want fields to be named", got.Code, err)
			}
			return
		}
		sent, err := m.Body()
		if err != nil {
			t.Fatal(err)
		}
		if c, bad := outsideSQS(sent); bad {
			t.Fatalf("the body has the character %U, which SQS does not take: %q", c, sent)
		}
		back, err := r.Decode(sent, messageID, noon)
		if err != nil {
			t.Fatalf("sent on: %v", err)
		}
		if back.ID != m.ID || back.Task != m.Task || len(back.Fields) != len(m.Fields) {
			t.Fatalf("sent on: got %+v, want %+v", back, m)
		}
		twice, err := back.Body()
		if diff := cmp.Diff(string(sent), string(twice)); err != nil || diff != "" {
			t.Fatalf("sent on twice: %v\n%s", err, diff)
		}
	})
}
