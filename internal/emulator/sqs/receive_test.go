package sqs_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jonboulle/clockwork"

	"agentworker/internal/emulator/sqs"
)

func TestVisibilityTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "VisibilityTimeout", "10")
	sentAt := w.clock.Now()
	w.send(url, "work")
	w.clock.Advance(3 * time.Second)
	firstAt := w.clock.Now()

	for attempt := 1; attempt <= 3; attempt++ {
		m := w.one(url)
		for name, want := range map[types.MessageSystemAttributeName]string{
			"ApproximateReceiveCount":          strconv.Itoa(attempt),
			"SentTimestamp":                    strconv.FormatInt(sentAt.UnixMilli(), 10),
			"ApproximateFirstReceiveTimestamp": strconv.FormatInt(firstAt.UnixMilli(), 10),
			"SenderId":                         "AIDAAAAAAAAAAAAAAAAAA",
		} {
			if got := system(m, name); got != want {
				t.Errorf("attempt %d: %s = %s, want %s", attempt, name, got, want)
			}
		}
		w.wantDepth(url, "tasks", 0, 1, 0)
		w.clock.Advance(10*time.Second - time.Millisecond)
		w.wantBodies(w.receive(url, 10))
		w.clock.Advance(time.Millisecond)
		w.wantDepth(url, "tasks", 1, 0, 0)
	}
	w.one(url, visibility(2))
	w.clock.Advance(2 * time.Second)
	w.returned(url, 1)
	w.one(url)
}

func TestDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "DelaySeconds", "30")
	w.send(url, "queue's delay")
	w.send(url, "own delay", delayed(5))
	w.wantDepth(url, "tasks", 0, 0, 2)
	w.wantBodies(w.receive(url, 10))
	w.clock.Advance(5 * time.Second)
	w.wantBodies(w.receive(url, 10), "own delay")
	must(t, 0, w.set(url, "DelaySeconds", "0")) // holds for new messages only
	w.wantDepth(url, "tasks", 0, 1, 1)
	w.clock.Advance(25 * time.Second)
	w.wantBodies(w.receive(url, 10), "queue's delay")
}

func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue("dead")
	url := w.queue("tasks", "MessageRetentionPeriod", "60", "VisibilityTimeout", "1", "RedrivePolicy", redrive("dead", 1))
	w.send(url, "expires in flight")
	w.send(url, "expires unseen")
	w.one(url)
	w.clock.Advance(60*time.Second - time.Millisecond)
	w.wantDepth(url, "tasks", 2, 0, 0)
	w.clock.Advance(time.Millisecond)
	w.wantBodies(w.receive(url, 10))
	w.wantDepth(url, "tasks", 0, 0, 0)
	if visible, _, _, _ := w.server.Depth("dead"); visible != 0 {
		t.Errorf("%d messages were dead-lettered after they expired, want 0", visible)
	}
}

func TestAttributeSelection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	w.send(url, "x", func(in *awssqs.SendMessageInput) {
		in.MessageAttributes = map[string]types.MessageAttributeValue{
			"task.type": {DataType: aws.String("String"), StringValue: aws.String("rag")},
			"task.id":   {DataType: aws.String("String"), StringValue: aws.String("1")},
			"priority":  {DataType: aws.String("Number.int"), StringValue: aws.String("7")},
			"raw":       {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		}
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-2-3")},
		}
	})
	for name, c := range map[string]struct {
		ask, want []string
	}{
		"none":    {nil, nil},
		"All":     {[]string{"All"}, []string{"priority", "raw", "task.id", "task.type"}},
		"dotstar": {[]string{".*"}, []string{"priority", "raw", "task.id", "task.type"}},
		"prefix":  {[]string{"task.*"}, []string{"task.id", "task.type"}},
		"names":   {[]string{"priority", "missing"}, []string{"priority"}},
	} {
		m := w.returned(url, 1, func(in *awssqs.ReceiveMessageInput) { in.MessageAttributeNames = c.ask })[0]
		var got []string
		for attribute := range m.MessageAttributes {
			got = append(got, attribute)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: attributes = %q, want %q", name, got, c.want)
		}
		if (m.MD5OfMessageAttributes != nil) != (len(c.want) > 0) {
			t.Errorf("%s: MD5OfMessageAttributes = %v", name, m.MD5OfMessageAttributes)
		}
	}
	m := w.returned(url, 1, func(in *awssqs.ReceiveMessageInput) {
		in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"AWSTraceHeader"}
	})[0]
	if got := m.Attributes; len(got) != 1 || got["AWSTraceHeader"] != "Root=1-2-3" {
		t.Errorf("system attributes = %v, want only the trace header", got)
	}
	m = w.returned(url, 1, func(in *awssqs.ReceiveMessageInput) {
		in.MessageSystemAttributeNames = nil
		in.AttributeNames = []types.QueueAttributeName{"All"} //nolint:staticcheck // deprecated, and still what boto3 users send
	})[0]
	if m.Attributes["SentTimestamp"] == "" {
		t.Errorf("AttributeNames All: system attributes = %v, want all", m.Attributes)
	}
	if got := m.MessageAttributes["raw"].BinaryValue; !slices.Equal(got, []byte{0, 255}) {
		t.Errorf("binary attribute = %v, want [0 255]", got)
	}
}

func TestReceiveRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	for name, change := range map[string]receiving{
		"11 messages":   func(in *awssqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 11 },
		"wait 21 s":     waiting(21),
		"visibility -1": visibility(-1),
		"over 12 h":     visibility(43_201),
		"attempt id":    func(in *awssqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = aws.String("a b") },
	} {
		_, err := w.receiveFrom(t.Context(), url, 1, change)
		t.Log(name)
		wantCode(t, err, "InvalidParameterValue")
	}
}

func TestLongPollWakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *world, url string) // before the poll
		trigger func(w *world, url string) // while it waits
		want    []string
	}{
		"when a message is sent": {
			trigger: func(w *world, url string) { w.send(url, "new") },
			want:    []string{"new"},
		},
		"when a delay ends": {
			prepare: func(w *world, url string) { w.send(url, "late", delayed(5)) },
			trigger: func(w *world, _ string) { w.clock.Advance(5 * time.Second) },
			want:    []string{"late"},
		},
		"when a delay ends that began while it waited": {
			trigger: func(w *world, url string) {
				w.send(url, "late", delayed(5))
				must(w, 0, w.clock.BlockUntilContext(w.Context(), 1))
				w.advanceInSteps(5 * time.Second)
			},
			want: []string{"late"},
		},
		"when a visibility timeout ends": {
			prepare: func(w *world, url string) { w.send(url, "again"); w.one(url, visibility(7)) },
			trigger: func(w *world, _ string) { w.clock.Advance(7 * time.Second) },
			want:    []string{"again"},
		},
		"when the time is over": {
			trigger: func(w *world, _ string) { w.clock.Advance(20 * time.Second) },
		},
		"when the server closes": {
			trigger: func(w *world, _ string) { must(w, 0, w.server.Close()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			url := w.queue("tasks")
			if c.prepare != nil {
				c.prepare(w, url)
			}
			done := w.startPoll(t.Context(), url, 20, 0)
			c.trigger(w, url)
			w.wantBodies(w.await(done), c.want...)
		})
	}
}

// advanceInSteps moves the clock in small steps: the poll starts a new timer in between.
func (w *world) advanceInSteps(total time.Duration) {
	w.Helper()
	for range int(total / (100 * time.Millisecond)) {
		w.clock.Advance(100 * time.Millisecond)
	}
}

func TestLongPollUsesTheQueuesWaitTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "ReceiveMessageWaitTimeSeconds", "3")
	done := make(chan poll, 1)
	go func() {
		// The SDK leaves WaitTimeSeconds out when it is zero.
		messages, err := w.receiveFrom(t.Context(), url, 1)
		done <- poll{messages, err}
	}()
	must(t, 0, w.clock.BlockUntilContext(t.Context(), 1))
	w.clock.Advance(3 * time.Second)
	w.wantBodies(w.await(done))
}

func TestLongPollEndsWithTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	done := w.startPoll(t.Context(), url, 20, 0)
	_, err := w.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &url})
	must(t, 0, err)
	select {
	case p := <-done:
		wantError[*types.QueueDoesNotExist](t, p.err)
	case <-time.After(time.Minute):
		t.Fatal("the long poll was not answered")
	}
}

func TestClientThatHangsUpTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	const clients = 20
	ctx, hangUp := context.WithCancel(t.Context())
	var polls []<-chan poll
	for i := range clients {
		polls = append(polls, w.startPoll(ctx, url, 20, i))
	}
	hangUp()
	for _, done := range polls {
		if p := <-done; p.err == nil {
			t.Error("a poll that was hung up returned without an error")
		}
	}
	for gone := 0; gone < clients; {
		select {
		case target := <-w.answered:
			if target == "AmazonSQS.ReceiveMessage" {
				gone++
			}
		case <-time.After(time.Minute):
			t.Fatalf("the server has noticed only %d of %d clients that hung up", gone, clients)
		}
	}
	w.send(url, "kept")
	if m := w.one(url); system(m, "ApproximateReceiveCount") != "1" {
		t.Errorf("receive count = %s, want 1: a client that was gone took the message", system(m, "ApproximateReceiveCount"))
	}
}

func TestNoMessageIsHandedOutTwice(t *testing.T) {
	t.Parallel()
	w := openWorld(t, sqs.Options{}) // real time, so that long polls and sends interleave freely
	url := w.queue("tasks", "VisibilityTimeout", "43200")
	const messages, receivers = 400, 12
	var mu sync.Mutex
	seen := map[string]int{}
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range receivers {
		group.Go(func() {
			for ctx.Err() == nil {
				got, err := w.receiveFrom(ctx, url, 10, waiting(20))
				if err != nil {
					return
				}
				mu.Lock()
				for _, m := range got {
					seen[*m.Body]++
				}
				if len(seen) == messages {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	for sender := range 4 {
		group.Go(func() {
			for i := range messages / 4 {
				body := fmt.Sprintf("%d-%d", sender, i)
				if _, err := w.client.SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if len(seen) != messages {
		t.Errorf("received %d different messages, want %d", len(seen), messages)
	}
	for body, n := range seen {
		if n != 1 {
			t.Errorf("message %s was handed out %d times, want once", body, n)
		}
	}
}

func TestFailingMessageDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	w.send(url, "fails")
	w.clock.Advance(time.Second)
	w.send(url, "waits")
	w.clock.Advance(time.Second)
	w.wantBodies(w.returned(url, 1), "fails")
	w.wantBodies(w.returned(url, 1), "waits")
}

func TestFairQueueLetsQuietGroupsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	for i := range 60 {
		w.send(url, fmt.Sprintf("noisy-%d", i), inGroup("noisy"))
	}
	w.clock.Advance(time.Second)
	w.send(url, "quiet", inGroup("quiet"))
	w.send(url, "no group")
	// Below 30 in flight nobody is noisy, and who came first goes first.
	for range 3 {
		if got := w.receive(url, 10); slices.Contains(bodiesOf(got), "quiet") {
			t.Fatalf("received %q while the first group was not noisy yet", bodiesOf(got))
		}
	}
	m := w.one(url)
	if *m.Body != "quiet" || system(m, "MessageGroupId") != "quiet" {
		t.Errorf("next message = %s of group %s, want the quiet one", *m.Body, system(m, "MessageGroupId"))
	}
	if m := w.one(url); *m.Body != "no group" {
		t.Errorf("next message = %s, want the one without a group", *m.Body)
	}
	if got := w.receive(url, 10); len(got) != 10 {
		t.Errorf("received %d of the noisy group when no other is left, want 10: it is never throttled", len(got))
	}
}

func TestInFlightLimit(t *testing.T) {
	t.Parallel()
	w := openWorld(t, sqs.Options{InFlightLimit: 3, Clock: clockwork.NewFakeClock()})
	url := w.queue("tasks")
	ordered := w.fifo("ordered.fifo", "ContentBasedDeduplication", "true")
	for i := range 5 {
		w.send(url, strconv.Itoa(i))
		w.send(ordered, strconv.Itoa(i), inGroup(strconv.Itoa(i)))
	}
	got := w.receive(url, 10)
	w.wantBodies(got, "0", "1", "2")
	_, err := w.receiveFrom(t.Context(), url, 1)
	wantError[*types.OverLimit](t, err)
	done := w.startPoll(t.Context(), url, 20, 0) // no error while polling long
	must(t, 0, w.delete(url, got[0]))
	w.wantBodies(w.await(done), "3")

	w.wantBodies(w.receive(ordered, 10), "0", "1", "2")
	w.wantBodies(w.receive(ordered, 10)) // no error in a FIFO queue
}

// The age of the oldest message counts from its sending, in flight or not, and nobody has to receive it.
func TestAgeOfTheOldestMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	age := func() time.Duration {
		t.Helper()
		d, ok := w.server.OldestAge("tasks")
		if !ok {
			t.Fatal("there is no such queue")
		}
		return d
	}
	if got := age(); got != 0 {
		t.Errorf("empty: got %v, want 0", got)
	}
	w.send(url, "first")
	w.clock.Advance(time.Minute)
	w.send(url, "second")
	w.clock.Advance(time.Minute)
	if got := age(); got != 2*time.Minute {
		t.Errorf("got %v, want the first one's 2m", got)
	}
	out, err := w.client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &url, VisibilityTimeout: 600})
	if err != nil || len(out.Messages) != 1 || *out.Messages[0].Body != "first" {
		t.Fatalf("receive: got %+v, %v, want the first", out, err)
	}
	if got := age(); got != 2*time.Minute {
		t.Errorf("in flight: got %v, want 2m", got)
	}
	if _, err := w.client.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: out.Messages[0].ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	if got := age(); got != time.Minute {
		t.Errorf("the first one done: got %v, want the second one's 1m", got)
	}
	if _, ok := w.server.OldestAge("other"); ok {
		t.Error("a queue that is not there has an age")
	}
}
