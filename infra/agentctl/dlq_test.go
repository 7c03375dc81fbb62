package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator"
)

// The model is down for a while, for three reasons. Thirty of two hundred tasks die of it; when it is mended, ten of them
// are brought back by their reason.
func TestDeadLettersComeBackByReason(t *testing.T) {
	t.Parallel()
	model := modeltest.Start(t)
	var mu sync.Mutex
	down := true
	reasons := map[string]modeltest.Reply{
		"MODEL_UNAVAILABLE":    modeltest.Fail(http.StatusServiceUnavailable, "down"),
		"MODEL_ACCESS_DENIED":  modeltest.Deny("not let in"),
		"MODEL_QUOTA_EXCEEDED": modeltest.Fail(http.StatusPaymentRequired, "pay"),
	}
	model.Respond(func(c modeltest.Call) modeltest.Reply {
		mu.Lock()
		defer mu.Unlock()
		asked := c.Request.Messages[len(c.Request.Messages)-1].Text
		for code, reply := range reasons {
			if down && strings.Contains(asked, code) {
				return reply
			}
		}
		return modeltest.Say("A queue for what failed [1].")
	})
	y := newYard(t, func(c *emulator.Config) {
		c.Stack.Retries = 0
		c.WorkerEnv = []string{"MODEL=openai:test", "OPENAI_BASE_URL=" + model.OpenAIURL(), "OPENAI_API_KEY=any"}
	})
	ids := y.ask(t, 200, func(i int) string {
		codes := []string{"MODEL_UNAVAILABLE", "MODEL_ACCESS_DENIED", "MODEL_QUOTA_EXCEEDED"}
		if i < 30 {
			return codes[i%3]
		}
		return "fine"
	})
	const dead = "agent-tasks-dlq"
	y.eventually(t, "30 dead letters", func() bool { return y.depth(t, "agent-tasks") == 0 && y.depth(t, dead) == 30 })

	// The alarm may have told of the first ones alone; the schedule tells of the rest.
	tells := func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		for _, text := range y.notified {
			if strings.Contains(text, "10 x MODEL_UNAVAILABLE") && strings.Contains(text, "10 x MODEL_ACCESS_DENIED") && strings.Contains(text, "10 x MODEL_QUOTA_EXCEEDED") {
				return true
			}
		}
		return false
	}
	y.eventually(t, "the notification of three reasons with ten each", func() bool {
		if !tells() {
			out, err := y.lambda.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &y.stack.DLQAlarm.Name, Payload: []byte(`{"source":"aws.events","detail-type":"Scheduled Event"}`)})
			var busy *lambdatypes.TooManyRequestsException // the alarm has called it
			if !errors.As(err, &busy) && (err != nil || out.FunctionError != nil) {
				t.Fatalf("dlqalarm: %v, %+v", err, out)
			}
		}
		return tells()
	})
	y.shows(t, []string{"dlq", "ls"}, "30 dead letters", "10  MODEL_UNAVAILABLE  rag_query", "10  MODEL_ACCESS_DENIED", "10  MODEL_QUOTA_EXCEEDED", "ordered-dlq.fifo: 0 dead letters")
	y.shows(t, []string{"dlq", "show", string(ids[0])}, "MODEL_UNAVAILABLE", "attempt 1", `"question":`, "attribute task_type", "failed")

	mu.Lock()
	down = false
	mu.Unlock()
	y.shows(t, []string{"dlq", "redrive", "--reason", "MODEL_ACCESS_DENIED", "--dry-run"}, "10 dead letters would be redriven")
	y.agentctl(t, "dlq", "redrive", "--reason", "MODEL_ACCESS_DENIED", "--queue", "tasks").want(t, 0, "10 dead letters redriven")
	y.eventually(t, "the ten to end", func() bool { return y.depth(t, "agent-tasks") == 0 })
	if got := y.depth(t, dead); got != 20 {
		t.Errorf("%d dead letters are left, want 20", got)
	}
	y.shows(t, []string{"dlq", "ls", "--reason", "MODEL_UNAVAILABEL"}, "0 dead letters", "Nothing fits the selection. What lies there: 10 MODEL_QUOTA_EXCEEDED, 10 MODEL_UNAVAILABLE")
	y.agentctl(t, "dlq", "redrive", "--reason", "MODEL_UNAVAILABEL", "--queue", "tasks").want(t, 0, "0 dead letters redriven", "Nothing fits the selection. What lies there: 10 MODEL_QUOTA_EXCEEDED, 10 MODEL_UNAVAILABLE")
	for i, id := range ids {
		want := checkpoint.Succeeded
		if i < 30 && i%3 != 1 {
			want = checkpoint.Failed
		}
		if rec := y.record(t, id); rec.Status != want {
			t.Errorf("task %d: got %s, want %s (%v)", i, rec.Status, want, rec.Error)
		}
	}

	// The rest goes back as a whole, and one of it that has succeeded meanwhile has no effect any more.
	done := y.record(t, ids[0])
	claimed, err := y.store.Claim(t.Context(), checkpoint.ClaimRequest{ID: ids[0], Task: "rag_query", MessageID: "by-hand", Owner: "test", Until: time.Now().Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.store.Commit(t.Context(), checkpoint.Commit{Record: claimed, Step: "answer", Data: []byte(`"by hand"`), Last: true}); err != nil {
		t.Fatal(err)
	}
	y.agentctl(t, "dlq", "redrive", "--queue", "tasks", "--rate", "100").want(t, 0, "SQS has moved 20 of 20", "1 of them had already succeeded: their redelivery has no effect")
	y.eventually(t, "the rest to end", func() bool { return y.depth(t, "agent-tasks") == 0 })
	for i, id := range ids {
		if rec := y.record(t, id); rec.Status != checkpoint.Succeeded {
			t.Errorf("task %d in the end: got %s, want succeeded (%v)", i, rec.Status, rec.Error)
		}
	}
	if rec := y.record(t, ids[0]); len(rec.Attempts) != len(done.Attempts)+1 {
		t.Errorf("the task that had succeeded: got %d attempts, want %d: none by the redelivery", len(rec.Attempts), len(done.Attempts)+1)
	}
	y.agentctl(t, "dlq", "redrive").want(t, 0, "0 dead letters redriven")
}

// A dead letter that came from an SNS topic is the task that the worker took it for, since the worker's topics are agentctl's.
func TestADeadLetterFromATopicIsItsTask(t *testing.T) {
	t.Parallel()
	const topic = "arn:aws:sns:us-east-1:000000000000:theirs"
	y := newYard(t, func(c *emulator.Config) { c.AllowedTopics = []string{topic} })
	body := fmt.Sprintf(`{"Type":"Notification","MessageId":"22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324","TopicArn":%q,`+
		`"Timestamp":"2026-11-29T12:00:00.000Z","Message":"{\"task\":\"update_ticket\",\"ticket_id\":\"TK-7\",\"status\":\"open\",\"expected_version\":5}"}`, topic)
	if _, err := y.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: y.url(t, y.stack.Tasks.QueueName()), MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
	y.eventually(t, "the dead letter", func() bool { return y.depth(t, y.stack.Tasks.DeadLetterName()) == 1 })
	y.shows(t, []string{"dlq", "ls"}, "1  VERSION_MISMATCH  update_ticket")
	y.shows(t, []string{"dlq", "redrive", "--type", "update_ticket", "--dry-run"}, "1 dead letter would be redriven")
}

// agentctl is killed at random calls, before they arrive or before their answers do, and run again until it is done.
func TestAKilledRedriveLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"tasks", "ordered"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, nil)
			queue, dead := y.stack.Tasks.QueueName(), y.stack.Tasks.DeadLetterName()
			if which == "ordered" {
				queue, dead = y.stack.Ordered.QueueName(), y.stack.Ordered.DeadLetterName()
			}
			ids := y.bury(t, dead, 500)
			k := newKiller(t, y, queue)
			y.aws = k.url
			args := []string{"dlq", "redrive", "--queue", which, "--reason", "MODEL_DOWN", "--settle", "1s", "--hide", "3s"}
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			t.Logf("seed %d", seed)
			kills := 0
			for range 8 {
				c := y.command(t.Context(), args...)
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				k.aim(c.Process, 20+random.IntN(300), random.IntN(2) == 0)
				_ = c.Wait() // how it ended is asked next
				if c.ProcessState.ExitCode() == -1 {
					kills++
				}
			}
			k.aim(nil, 0, false)
			var last run
			for range 4 {
				if last = y.agentctl(t, args...); last.code == 0 && y.depth(t, dead) == 0 {
					break
				}
				y.eventually(t, "the queue to be empty", func() bool { return y.depth(t, queue) == 0 })
			}
			last.want(t, 0)
			y.eventually(t, "the tasks to end", func() bool { return y.depth(t, queue) == 0 })
			if got := y.depth(t, dead); got != 0 || kills < 5 {
				t.Errorf("%d dead letters are left after %d kills, want none after 5 or more\n%s%s", got, kills, last.out, last.err)
			}
			for _, id := range ids {
				rec, copies := y.record(t, id), k.copies(id)
				if copies != 1 || rec.Status != checkpoint.Succeeded || len(rec.Attempts) != 2 {
					t.Errorf("task %s: got %d copies, %s after %d attempts; want 1, succeeded after 2: %+v", id, copies, rec.Status, len(rec.Attempts), rec.Redrives)
				}
			}
		})
	}
}

// A whole queue is moved by SQS: without what an interrupted redrive has copied, and until somebody says stop.
func TestAWholeQueueIsMovedUntilInterrupted(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	queue, dead := y.stack.Tasks.QueueName(), y.stack.Tasks.DeadLetterName()
	ids := y.bury(t, dead, 30)
	rec := y.record(t, ids[0])
	rec, err := y.store.BeginRedrive(t.Context(), rec, rec.MessageID, "MODEL_DOWN")
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"task":"rag_query","task_id":%q,"question":"What is a dead-letter queue?"}`, ids[0])
	sent, err := y.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: y.url(t, queue), MessageBody: &body})
	if err != nil {
		t.Fatal(err)
	}
	if err := y.store.EndRedrive(t.Context(), rec, rec.MessageID, *sent.MessageId, true); err != nil {
		t.Fatal(err)
	}
	y.shows(t, []string{"dlq", "ls", "--queue", "tasks"}, "1  ALREADY_REDRIVEN", "The redrive of 1 was interrupted")

	c := y.command(t.Context(), "dlq", "redrive", "--queue", "tasks", "--rate", "1")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	y.eventually(t, "the first ones to be moved", func() bool { return y.depth(t, dead) < 28 })
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = c.Wait() // how it ended is asked next
	run{code: c.ProcessState.ExitCode(), out: out.String()}.want(t, 130, "of 29 messages: CANCELLED", "1 of them had been copied by a redrive that was interrupted")
	left := y.depth(t, dead)
	if left == 0 || left > 27 {
		t.Errorf("%d dead letters are left, want some, and a few moved", left)
	}
	y.agentctl(t, "dlq", "redrive", "--queue", "tasks").want(t, 0, fmt.Sprintf("moved %d of %d", left, left))
	y.eventually(t, "the tasks to end", func() bool { return y.depth(t, queue) == 0 })
	for _, id := range ids {
		if rec := y.record(t, id); rec.Status != checkpoint.Succeeded || len(rec.Attempts) != 2 {
			t.Errorf("task %s: got %s after %d attempts, want succeeded after 2", id, rec.Status, len(rec.Attempts))
		}
	}
}

// What an interrupted redrive did not come to is not said to be hidden by somebody else.
func TestAnInterruptedSelectionSaysSo(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	dead := y.stack.Tasks.DeadLetterName()
	y.bury(t, dead, 30)
	c := y.command(t.Context(), "dlq", "redrive", "--queue", "tasks", "--reason", "MODEL_DOWN", "--rate", "1")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	y.eventually(t, "the first ones to be redriven", func() bool { return y.depth(t, dead) < 28 })
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = c.Wait() // how it ended is asked next
	run{code: c.ProcessState.ExitCode(), out: out.String()}.want(t, 130, "more were not looked at", "agentctl: interrupted")
}

// The alarm's function looks into the queue just when a whole redrive begins, and hides from it what was copied already.
func TestAWholeRedriveAwaitsWhatIsHidden(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	dead := y.stack.Tasks.DeadLetterName()
	ids := y.bury(t, dead, 10)
	rec := y.record(t, ids[0])
	rec, err := y.store.BeginRedrive(t.Context(), rec, rec.MessageID, "MODEL_DOWN")
	if err != nil {
		t.Fatal(err)
	}
	if err := y.store.EndRedrive(t.Context(), rec, rec.MessageID, "a-copy", true); err != nil {
		t.Fatal(err)
	}
	held := 0
	y.eventually(t, "all to be hidden", func() bool {
		out, err := y.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: y.url(t, dead), MaxNumberOfMessages: 10, VisibilityTimeout: 10})
		if err != nil {
			t.Fatal(err)
		}
		held += len(out.Messages)
		return held >= len(ids)
	})
	y.agentctl(t, "dlq", "redrive", "--queue", "tasks").want(t, 0, "moved 9 of 9", "1 of them had been copied by a redrive that was interrupted")
}

func TestPurgeAsksOrIsTold(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	ids := y.bury(t, y.stack.Tasks.DeadLetterName(), 20)
	y.agentctl(t, "dlq", "purge").want(t, 2, "--yes")
	y.agentctl(t, "dlq", "purge", "--yes", "--queue", "neither").want(t, 2, "tasks, ordered or both")
	y.agentctl(t, "dlq", "redrive", "--rate", "501").want(t, 2, "1 to 500")
	y.agentctl(t, "dlq", "redrive", "--task-id", "nonsense").want(t, 2, "--task-id")
	y.agentctl(t, "dlq", "show", "nobody").want(t, 1, "no dead letter")
	y.agentctl(t, "dlq", "purge", "--yes", "--task-id", string(ids[0])).want(t, 0, "1 dead letter purged")
	y.agentctl(t, "dlq", "purge", "--yes", "--task-id", string(ids[0])).want(t, 1, "was not found")
	y.agentctl(t, "dlq", "purge", "--yes", "--queue", "tasks").want(t, 0, "19 dead letters purged", "19  MODEL_DOWN")
	if got := y.depth(t, y.stack.Tasks.DeadLetterName()); got != 0 {
		t.Errorf("%d dead letters are left, want none", got)
	}
	if rec := y.record(t, ids[5]); rec.Status != checkpoint.Failed {
		t.Errorf("the task of a purged message: got %s, want failed", rec.Status)
	}
	listed := decode[struct {
		Queues []struct {
			Queue  string `json:"queue"`
			Seen   int    `json:"seen"`
			Groups []any  `json:"groups"`
		} `json:"queues"`
	}](t, y.agentctl(t, "--json", "dlq", "ls"))
	if len(listed.Queues) != 2 || listed.Queues[0].Queue != "agent-tasks-dlq" || listed.Queues[0].Seen != 0 || listed.Queues[0].Groups == nil {
		t.Errorf("ls as JSON: got %+v, want two empty queues with empty lists", listed)
	}
}
