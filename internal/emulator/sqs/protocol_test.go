package sqs_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentworker/internal/emulator/sqs"
)

// TestProtocol looks at the wire itself: what SDKs of other languages rely on.
func TestProtocol(t *testing.T) {
	t.Parallel()
	server, err := sqs.Open(sqs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for name, c := range map[string]struct {
		method, target, body string
		status               int
		shape, query         string
	}{
		"success":           {"POST", "AmazonSQS.ListQueues", `{}`, 200, "", ""},
		"no body":           {"POST", "AmazonSQS.ListQueues", ``, 200, "", ""},
		"unknown members":   {"POST", "AmazonSQS.ListQueues", `{"Colour":1}`, 200, "", ""},
		"typed error":       {"POST", "AmazonSQS.GetQueueUrl", `{"QueueName":"q"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue;Sender"},
		"common error":      {"POST", "AmazonSQS.ListQueues", `{"MaxResults":0}`, 400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue;Sender"},
		"missing":           {"POST", "AmazonSQS.CreateQueue", `{}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
		"no URL":            {"POST", "AmazonSQS.DeleteQueue", `{}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
		"not a URL":         {"POST", "AmazonSQS.DeleteQueue", `{"QueueUrl":"q"}`, 400, "com.amazonaws.sqs#InvalidAddress", "InvalidAddress;Sender"},
		"other account":     {"POST", "AmazonSQS.DeleteQueue", `{"QueueUrl":"http://x/111111111111/q"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue;Sender"},
		"not JSON":          {"POST", "AmazonSQS.ListQueues", `{`, 400, "com.amazon.coral.service#SerializationException", ""},
		"wrong type":        {"POST", "AmazonSQS.ListQueues", `{"MaxResults":"1"}`, 400, "com.amazon.coral.service#SerializationException", ""},
		"duplicate name":    {"POST", "AmazonSQS.ListQueues", `{"MaxResults":1,"MaxResults":2}`, 400, "com.amazon.coral.service#SerializationException", ""},
		"not UTF-8":         {"POST", "AmazonSQS.ListQueues", "{\"NextToken\":\"\xff\"}", 400, "com.amazon.coral.service#SerializationException", ""},
		"action not UTF-8":  {"POST", "AmazonSQS.\xff", `{}`, 400, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender"},
		"unknown action":    {"POST", "AmazonSQS.Fly", `{}`, 400, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender"},
		"another service":   {"POST", "DynamoDB_20120810.ListTables", `{}`, 400, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender"},
		"not a POST":        {"GET", "AmazonSQS.ListQueues", ``, 400, "com.amazon.coral.service#UnknownOperationException", "InvalidAction;Sender"},
		"request too large": {"POST", "AmazonSQS.ListQueues", strings.Repeat(" ", 17<<20), 413, "com.amazon.coral.service#SerializationException", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), c.method, "/", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/x-amz-json-1.0")
			r.Header.Set("X-Amz-Target", c.target)
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			body, _ := io.ReadAll(w.Body)
			var answer struct {
				Type    string `json:"__type"`
				Message string `json:"message"`
			}
			if err := json.Unmarshal(body, &answer); err != nil {
				t.Fatalf("answer %q: %v", body, err)
			}
			if w.Code != c.status || answer.Type != c.shape || w.Header().Get("X-Amzn-Query-Error") != c.query {
				t.Errorf("answer = %d %s, query error %q, want %d %s, %q", w.Code, body, w.Header().Get("X-Amzn-Query-Error"), c.status, c.shape, c.query)
			}
			if c.status != http.StatusOK && answer.Message == "" {
				t.Error("the error has no message")
			}
			if got := w.Header().Get("Content-Type"); got != "application/x-amz-json-1.0" {
				t.Errorf("Content-Type = %s", got)
			}
		})
	}
}

// TestZeroIsNotTheDefault sends what the Go SDK cannot say but others do: a zero that is meant.
func TestZeroIsNotTheDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "DelaySeconds", "30", "ReceiveMessageWaitTimeSeconds", "20")
	post := func(action, body string, header ...string) map[string]any {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, r)
		var answer map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || rec.Code != http.StatusOK {
			t.Fatalf("%s = %d %s, error %v", action, rec.Code, rec.Body, err)
		}
		return answer
	}
	post("SendMessage", `{"QueueUrl":"`+url+`","MessageBody":"now","DelaySeconds":0}`, "X-Amzn-Trace-Id", "Root=1-2-3")
	for range 2 { // visibility 0 leaves it there
		got := post("ReceiveMessage", `{"QueueUrl":"`+url+`","VisibilityTimeout":0,"AttributeNames":["AWSTraceHeader"]}`)
		messages, _ := got["Messages"].([]any)
		if len(messages) != 1 {
			t.Fatalf("received %v, want the message", got)
		}
		attributes, _ := messages[0].(map[string]any)["Attributes"].(map[string]any)
		if attributes["AWSTraceHeader"] != "Root=1-2-3" {
			t.Errorf("trace header = %v, want that of the request", attributes["AWSTraceHeader"])
		}
	}
	post("PurgeQueue", `{"QueueUrl":"`+url+`"}`)
	if got := post("ReceiveMessage", `{"QueueUrl":"`+url+`","WaitTimeSeconds":0}`); len(got) != 0 {
		t.Errorf("answer of an empty poll = %v, want an empty object", got)
	}
}

// A header may hold any bytes, where all else that comes is JSON.
func TestTraceHeaderThatIsNotUTF8HoldsNothingUp(t *testing.T) {
	t.Parallel()
	w := openWorld(t, sqs.Options{Dir: t.TempDir()})
	url := w.queue("tasks")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"QueueUrl":"`+url+`","MessageBody":"now"}`))
	r.Header.Set("X-Amz-Target", "AmazonSQS.SendMessage")
	r.Header.Set("X-Amzn-Trace-Id", "Root=\xff")
	rec := httptest.NewRecorder()
	w.server.ServeHTTP(rec, r)
	if rec.Code != http.StatusOK {
		t.Errorf("answer = %d %s, want 200", rec.Code, rec.Body)
	}
	if got := system(w.one(url), "AWSTraceHeader"); got != "" {
		t.Errorf("trace header = %q, want none", got)
	}
}

func TestClosedServerAnswers500(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	must(t, 0, w.server.Close())
	_, err := w.receiveFrom(t.Context(), url, 1)
	wantCode(t, err, "InternalFailure")
}
