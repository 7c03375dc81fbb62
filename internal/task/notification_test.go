package task_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"agentworker/internal/task"
)

const allowedTopic = "arn:aws:sns:eu-west-1:123456789012:tasks"

// wrapped is a notification as SNS puts it on a queue.
func wrapped(topic, message string) string {
	b, err := json.Marshal(map[string]any{
		"Type": "Notification", "MessageId": "95df01b4-ee98-5cb9-9903-4c221d41eb5e", "TopicArn": topic, "Subject": "s", "Message": message,
		"Timestamp": "2026-11-29T11:59:58.123Z", "SignatureVersion": "1", "Signature": "x", "SigningCertURL": "https://x", "UnsubscribeURL": "https://x",
		"MessageAttributes": map[string]any{"task_type": map[string]any{"Type": "String", "Value": "any"}},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Case: wrapped body (an SNS notification around a task)
func TestNotificationsOfAllowedTopicsAreUnwrapped(t *testing.T) {
	t.Parallel()
	const id = "th-1." + ulidA
	query := `{"task":"rag_query","task_id":"` + id + `","question":"9007199254740993"}`
	allowing := newRegistry(t).AllowTopics(allowedTopic)
	for name, tc := range map[string]struct {
		r        *task.Registry
		body     string
		wantID   string // "": in the thread of what is no task
		wantCode string
		wantText string
	}{
		"allowed":                        {allowing, wrapped(allowedTopic, query), id, "", ""},
		"not allowed":                    {allowing, wrapped(allowedTopic+"2", query), "", task.CodeTopicNotAllowed, allowedTopic + "2"},
		"allowed by its beginning":       {allowing, wrapped(strings.TrimSuffix(allowedTopic, "s"), query), "", task.CodeTopicNotAllowed, ""},
		"none are allowed":               {newRegistry(t), wrapped(allowedTopic, query), "", task.CodeTopicNotAllowed, allowedTopic},
		"text inside":                    {allowing, wrapped(allowedTopic, "hello"), "", task.CodeMalformed, "in the notification"},
		"bad field inside":               {allowing, wrapped(allowedTopic, `{"task":"rag_query","task_id":"`+id+`"}`), id, task.CodeInvalidField, "question"},
		"a notification inside":          {allowing, wrapped(allowedTopic, wrapped(allowedTopic, query)), "", task.CodeInvalidField, "task must be"},
		"subscription":                   {allowing, `{"Type":"SubscriptionConfirmation","TopicArn":"` + allowedTopic + `","Message":"x"}`, "", task.CodeInvalidField, "task must be"},
		"a task that looks like one":     {newRegistry(t), `{"Type":"Notification","TopicArn":"x","Message":"y",` + query[1:], id, "", ""},
		"a task whose names are SNS's":   {allowing, query[:len(query)-1] + `,"Type":"Notification","TopicArn":"x"}`, id, "", ""},
		"a topic that is not text":       {allowing, `{"Type":"Notification","TopicArn":5,"Message":"y"}`, "", task.CodeInvalidField, "task must be"},
		"names in another case":          {allowing, `{"type":"Notification","topicarn":"x","message":"y"}`, "", task.CodeInvalidField, "task must be"},
		"a topic that is rather long":    {allowing, wrapped(strings.Repeat("x", 9000), query), "", task.CodeTopicNotAllowed, "…"},
		"a message that is not text":     {allowing, `{"Type":"Notification","TopicArn":"` + allowedTopic + `","Message":{"task":"any"}}`, "", task.CodeMalformed, ""},
		"the same again is all the same": {allowing.AllowTopics("arn:aws:sns:eu-west-1:1:more"), wrapped(allowedTopic, query), id, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := tc.r.Decode([]byte(tc.body), messageID, noon)
			wantThread := task.Unparsed
			if tc.wantID != "" {
				wantThread = task.ID(tc.wantID).Thread()
			}
			if m.Thread != wantThread || tc.wantID != "" && string(m.ID) != tc.wantID {
				t.Errorf("id is %q in thread %q, want %q in %q", m.ID, m.Thread, tc.wantID, wantThread)
			}
			switch {
			case tc.wantCode == "" && err != nil:
				t.Fatalf("error is %v, want none", err)
			case tc.wantCode == "":
			case err == nil || task.FailureOf(err).Code != tc.wantCode || !task.IsPermanent(err) || !strings.Contains(err.Error(), tc.wantText):
				t.Errorf("error is %v, want a permanent %s with %q", err, tc.wantCode, tc.wantText)
			}
		})
	}
}

// SNS may deliver a notification twice; to SQS each is a new message.
func TestATaskInANotificationHasOneIDHoweverOftenItIsDelivered(t *testing.T) {
	t.Parallel()
	r := newRegistry(t).AllowTopics(allowedTopic)
	body := []byte(wrapped(allowedTopic, `{"task":"rag_query","question":"x"}`))
	first, err := r.Decode(body, messageID, noon)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Decode(body, "another message id", noon.AddDate(0, 0, 1))
	if err != nil || again.ID != first.ID {
		t.Errorf("id is %s (%v), want %s as at the first delivery", again.ID, err, first.ID)
	}
}
