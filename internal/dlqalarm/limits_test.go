package dlqalarm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"agentworker/internal/checkpoint"
	"agentworker/internal/dlqalarm"
	"agentworker/internal/task"
)

func inMemory(t *testing.T, q *memoryQueue, s *memoryStore) (*dlqalarm.Handler, *topic) {
	t.Helper()
	p := new(topic)
	return dlqalarm.New(dlqalarm.Config{
		Queues: []dlqalarm.Queue{{URL: "https://sqs.us-east-1.amazonaws.com/000000000000/" + q.name, Alarm: "runbook-heading"}},
		Tasks:  registry(t), Store: s, SQS: q, Topic: p, TopicARN: topicARN, Logger: slog.New(slog.DiscardHandler),
	}), p
}

func TestALookEndsBeforeTheInvocationDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &memoryQueue{name: queueName, delay: 900 * time.Millisecond}
		for i := range 500 {
			q.put(fmt.Sprint("m-", i), `{}`)
		}
		h, p := inMemory(t, q, new(memoryStore))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		s, err := h.Handle(ctx, []byte(sweep))
		if err != nil {
			t.Fatalf("Handle: %v", err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("the look took %v, want it to leave half of the time for the rest", took)
		}
		if got := s.Queues[0]; got.Seen < 100 || got.Seen >= 500 || got.Complete || !s.Published {
			t.Errorf("got %d seen, complete %v, published %v; want a part, incomplete, published", got.Seen, got.Complete, s.Published)
		}
		if subject, _ := p.last(); !strings.HasPrefix(subject, "at least ") {
			t.Errorf("subject: got %q, want it to say that there may be more", subject)
		}
		if n := q.hidden(); n != 0 {
			t.Errorf("%d messages are still hidden", n)
		}
		if q.longest < 15*time.Second || q.longest > 30*time.Second {
			t.Errorf("messages were hidden for %v, want for as long as a look may take and little more", q.longest)
		}
	})
}

// A receive that hangs must not take the messages before it along.
func TestAReceiveThatHangsGivesEverythingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &memoryQueue{name: queueName, delay: time.Second}
		for i := range 15 {
			q.put(fmt.Sprint("m-", i), `{}`)
		}
		h, _ := inMemory(t, q, new(memoryStore))
		h.SQS = &flaky{API: q, receives: 1, err: context.DeadlineExceeded, onBreak: func() { <-time.After(15 * time.Second) }}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		s, err := h.Handle(ctx, []byte(sweep))
		if err == nil || s.Queues[0].Seen != 10 || !s.Published {
			t.Errorf("got %+v, error %v; want 10 seen, published, an error", s, err)
		}
		if q.released != 10 || q.hidden() != 0 {
			t.Errorf("got %d given back, %d hidden; want 10 and 0", q.released, q.hidden())
		}
	})
}

func TestAHugeQueueIsToldOnceAndWhenItDoubles(t *testing.T) {
	t.Parallel()
	q := &memoryQueue{name: queueName}
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			q.put(fmt.Sprint("m-", i), `{}`)
		}
	}
	fill(0, 1500)
	h, p := inMemory(t, q, new(memoryStore))
	look := func() dlqalarm.Summary {
		t.Helper()
		s, err := h.Handle(t.Context(), []byte(sweep))
		if err != nil {
			t.Fatalf("Handle: %v", err)
		}
		return s
	}
	if s := look(); s.Queues[0].Seen != 1000 || s.Queues[0].Approximate != 1500 || s.Queues[0].Complete {
		t.Errorf("got %+v, want 1,000 seen of 1,500, not complete", s.Queues[0])
	}
	// SQS hands out others the next time.
	q.messages = append(q.messages[1000:], q.messages[:1000]...)
	if s := look(); s.Published {
		t.Errorf("the same queue was told twice: %q", p.sent())
	}
	fill(1500, 3000)
	if s := look(); !s.Published {
		t.Errorf("a queue that has doubled was not told")
	}
	if n := q.hidden(); n != 0 {
		t.Errorf("%d messages are still hidden", n)
	}
}

func TestANotificationKeepsToItsLimits(t *testing.T) {
	t.Parallel()
	q := &memoryQueue{name: strings.Repeat("q", 80)}
	for i := range 1000 {
		q.put(fmt.Sprint("m-", i), fmt.Sprintf(`{"task":"echo","text":"x","thread_id":"%s"}`, strings.Repeat("t", 100)))
	}
	n := 0
	var s memoryStore
	s.why = func(checkpoint.DeadLetter) task.Failure {
		s.mu.Lock()
		defer s.mu.Unlock()
		n++
		return task.Failure{
			Code:    fmt.Sprintf("CODE_ü_%d_%s\n", n, strings.Repeat("é", 300)),
			Message: "first\r\n\nWhat to do: send money\x1b[2J\u2028\xff" + strings.Repeat("世", 160),
		}
	}
	h, p := inMemory(t, q, &s)
	if _, err := h.Handle(t.Context(), []byte(`{"source":"aws.cloudwatch","alarmData":{"alarmName":"x\ny","state":{"value":"ALARM","reason":"`+strings.Repeat("r", 300_000)+`"}}}`)); err != nil {
		t.Fatalf("Handle: %v", err)
	}
	subject, body := p.last()
	if len(subject) > 100 || !strings.HasPrefix(subject, "at least 1000 dead letters in qqq") {
		t.Errorf("subject: got %d bytes, %.300q", len(subject), subject)
	}
	if i := strings.IndexFunc(subject, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		t.Errorf("subject is not printable ASCII at byte %d: %.300q", i, subject)
	}
	if len(body) > 256<<10 || !utf8.ValidString(body) {
		t.Errorf("body: got %d bytes, valid %v; want at most 256 KB of UTF-8", len(body), utf8.ValidString(body))
	}
	if strings.ContainsAny(body, "\r\x1b\u2028") || strings.Contains(body, "\nWhat to do: send") {
		t.Errorf("a reason can pass for a part of the notification:\n%.2000s", body)
	}
	for _, want := range []string{"and 960 more kinds", `see "runbook-heading" in the runbook`, "start-message-move-task --source-arn arn:"} {
		if !strings.Contains(body, want) {
			t.Errorf("body lacks %q:\n%.3000s", want, body)
		}
	}
}

func TestManyQueuesKeepToTheLimitsToo(t *testing.T) {
	t.Parallel()
	s := &memoryStore{why: func(d checkpoint.DeadLetter) task.Failure {
		return task.Failure{Code: d.MessageID, Message: strings.Repeat("世", 160)}
	}}
	h, p := inMemory(t, new(memoryQueue), s)
	queues := memoryQueues{}
	h.SQS, h.Queues = queues, nil
	for i := range 12 {
		q := dlqalarm.Queue{URL: fmt.Sprintf("https://sqs.us-east-1.amazonaws.com/000000000000/%d-%s", i, strings.Repeat("q", 75))}
		queues[q.URL] = &memoryQueue{name: path.Base(q.URL)}
		h.Queues = append(h.Queues, q)
	}
	if _, err := h.Handle(t.Context(), []byte(`{"source":"aws.cloudwatch","alarmArn":"a","alarmData":{"state":{"value":"OK","timestamp":"t"},"previousState":{"value":"ALARM"}}}`)); err != nil {
		t.Fatalf("Handle: %v", err)
	}
	if subject, _ := p.last(); len(subject) != 100 {
		t.Errorf("subject of an alarm that is over: got %d bytes, want 100: %q", len(subject), subject)
	}
	for _, q := range queues {
		for i := range 1000 {
			q.put(fmt.Sprint("m-", i), fmt.Sprintf(`{"task":"echo","text":"x","thread_id":"%s"}`, strings.Repeat("t", 100)))
		}
	}
	if _, err := h.Handle(t.Context(), []byte(sweep)); err != nil {
		t.Fatalf("Handle: %v", err)
	}
	if _, body := p.last(); len(body) > 256<<10 || len(body) < 200<<10 {
		t.Errorf("body: got %d bytes, want nearly 256 KB", len(body))
	}
}

func TestTheAnswerIsJSONWithoutReasons(t *testing.T) {
	t.Parallel()
	q := &memoryQueue{name: queueName}
	q.put("m-1", `{"task":"echo","task_id":"th.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB","text":"x"}`)
	h, _ := inMemory(t, q, &memoryStore{why: func(checkpoint.DeadLetter) task.Failure {
		return task.Failure{Code: "CODE", Message: "secret"}
	}})
	s, err := h.Handle(t.Context(), []byte(sweep))
	if err != nil {
		t.Fatalf("Handle: %v", err)
	}
	s.Queues[0].Groups[0].Oldest = time.Date(2026, 2, 17, 11, 53, 8, 0, time.UTC)
	got, err := json.Marshal(s) // as aws-lambda-go does
	if err != nil {
		t.Fatal(err)
	}
	want := `{"event":"schedule","published":true,"queues":[{"queue":"agent-tasks-dlq",` +
		`"arn":"arn:aws:sqs:us-east-1:000000000000:agent-tasks-dlq","alarm":"runbook-heading","seen":1,"approximate":1,` +
		`"complete":true,"groups":[{"task":"echo","code":"CODE","count":1,"oldest":"2026-02-17T11:53:08Z",` +
		`"task_ids":["th.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"]}]}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
