package sqs_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/jonboulle/clockwork"

	"agentworker/internal/emulator/sqs"
)

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	clock := clockwork.NewFakeClock()
	opts := sqs.Options{Dir: filepath.Join(t.TempDir(), "made", "for us"), Clock: clock}
	before := openWorld(t, opts)
	opts.BaseURL = "http://queue.invalid" // URLs may change, queues do not
	before.queue("dead")
	url := before.queue("tasks", "VisibilityTimeout", "30", "RedrivePolicy", redrive("dead", 3))
	ordered := before.fifo("q.fifo")
	attributes := before.attributes(url)

	before.send(url, "in flight", func(in *awssqs.SendMessageInput) {
		in.MessageAttributes = map[string]types.MessageAttributeValue{"raw": {DataType: aws.String("Binary"), BinaryValue: []byte{0}}}
	})
	before.returned(url, 1)
	held := before.one(url)
	before.send(url, "late", delayed(60), inGroup("g"))
	gone := before.send(url, "deleted")
	must(t, 0, before.delete(url, before.one(url)))
	first := before.send(ordered, "a1", inGroup("a"), deduplicated("a1"))
	before.sendFIFO(ordered, "a", "a2", "a3")
	locked := before.one(ordered)
	before.poisoned("other", "dead", 3)
	_, err := before.startMove("dead", "", 1)
	must(t, 0, err)
	clock.Advance(time.Second)
	before.wantMove("dead", "RUNNING", 1, 3)
	must(t, 0, before.server.Close())

	after := openWorld(t, opts)
	if got := after.attributes(url); fmt.Sprint(redated(got)) != fmt.Sprint(redated(attributes)) {
		t.Errorf("attributes = %v, want %v", got, attributes)
	}
	after.wantDepth(url, "tasks", 0, 1, 1)
	after.wantDepth(ordered, "q.fifo", 2, 1, 0)
	after.wantBodies(after.receive(ordered, 10)) // the group is locked
	must(t, 0, after.hide(url, held, 0))         // handles still hold
	again := after.one(url)
	if system(again, "ApproximateReceiveCount") != "3" || *again.MessageId == *gone.MessageId ||
		len(again.MessageAttributes["raw"].BinaryValue) != 1 || *again.ReceiptHandle == *held.ReceiptHandle {
		t.Errorf("message after the restart = %+v, want the third delivery with its attribute and a new handle", again)
	}
	must(t, 0, after.delete(ordered, locked))
	duplicate := after.send(ordered, "a1 again", inGroup("a"), deduplicated("a1"))
	if *duplicate.MessageId != *first.MessageId {
		t.Errorf("the duplicate got the id %s, want %s of the first", *duplicate.MessageId, *first.MessageId)
	}
	if next := after.send(ordered, "a4", inGroup("a"), deduplicated("a4")); *next.SequenceNumber <= system(locked, "SequenceNumber") {
		t.Errorf("sequence number %s after the restart, want more than %s", *next.SequenceNumber, system(locked, "SequenceNumber"))
	}
	after.wantBodies(after.receive(ordered, 10), "a2", "a3", "a4")
	clock.Advance(2 * time.Second)
	after.wantMove("dead", "COMPLETED", 3, 3)
	clock.Advance(57 * time.Second)
	after.wantBodies(after.receive(url, 10), "late") // "in flight" has had its three receives
	if visible, _, _, _ := after.server.Depth("dead"); visible != 1 {
		t.Errorf("%d dead letters, want the one that was in flight over the restart", visible)
	}
}

// redated drops what may differ.
func redated(attributes map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range attributes {
		if !strings.HasPrefix(name, "Approximate") {
			out[name] = value
		}
	}
	return out
}

func TestRestartForgetsPurgedAndDeletedQueues(t *testing.T) {
	t.Parallel()
	opts := sqs.Options{Dir: t.TempDir(), Clock: clockwork.NewFakeClock()}
	before := openWorld(t, opts)
	purged, deleted := before.queue("purged"), before.queue("deleted")
	before.send(purged, "x")
	before.send(deleted, "x")
	_, err := before.client.PurgeQueue(t.Context(), &awssqs.PurgeQueueInput{QueueUrl: &purged})
	must(t, 0, err)
	before.send(purged, "sent after the purge")
	_, err = before.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &deleted})
	must(t, 0, err)
	must(t, 0, before.server.Close())

	after := openWorld(t, opts)
	after.wantBodies(after.receive(purged, 10), "sent after the purge")
	_, err = after.receiveFrom(t.Context(), deleted, 1)
	wantError[*types.QueueDoesNotExist](t, err)
}

func TestFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openWorld(t, sqs.Options{Dir: dir})
	if server, err := sqs.Open(sqs.Options{Dir: dir}); err == nil {
		_ = server.Close()
		t.Error("a second server opened the same folder, want an error")
	}
}

// TestKill kills the server process in the middle of its work, again and again, and looks whether it
// kept what it had promised.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	load := &load{T: t, sent: map[string]bool{}, deleted: map[string]bool{}, received: map[string]int{}}
	for round := range 3 {
		load.round = round
		load.untilKilled(dir)
	}
	// An hour later nothing is in flight any more.
	w := openWorld(t, sqs.Options{Dir: dir, Clock: clockwork.NewFakeClockAt(time.Now().Add(time.Hour))})
	left := map[string]int{}
	for _, url := range []string{w.queue("tasks"), w.fifo("q.fifo")} {
		for {
			got := w.receive(url, 10)
			if len(got) == 0 {
				break
			}
			for _, m := range got {
				left[*m.Body], _ = strconv.Atoi(system(m, "ApproximateReceiveCount"))
				must(t, 0, w.delete(url, m))
			}
		}
	}
	t.Logf("%d sends and %d deletes were acknowledged; %d messages are left", len(load.sent), len(load.deleted), len(left))
	for body := range load.sent {
		count, there := left[body]
		switch {
		case load.deleted[body] && there:
			t.Errorf("%s came back after its delete was acknowledged", body)
		case !load.deleted[body] && !there && !load.mayBeGone[body]:
			t.Errorf("%s is lost although its send was acknowledged", body)
		case there && count <= load.received[body]:
			t.Errorf("%s has been received %d times, want more than the %d receives that were answered", body, count, load.received[body])
		}
	}
}

// load is what clients of a server know for sure about their messages.
type load struct {
	*testing.T
	round int

	mu        sync.Mutex
	sent      map[string]bool // acknowledged
	deleted   map[string]bool // acknowledged
	mayBeGone map[string]bool // delete asked for, no answer
	received  map[string]int  // highest receive count that was answered
}

func (l *load) untilKilled(dir string) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(l, out, err)
	must(l, 0, child.Start())
	killed := false
	defer func() {
		if !killed {
			_ = child.Process.Kill()
		}
		_ = child.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	client := newClient(l.T, strings.TrimSpace(must(l, address, err)))
	create := func(name string, attributes ...string) string {
		out, err := client.CreateQueue(l.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
		return *must(l, out, err).QueueUrl
	}
	urls := []string{create("tasks"), create("q.fifo", "FifoQueue", "true")}

	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	var acknowledged atomic.Int64
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() { l.sendUntilError(ctx, client, urls[i%2], i, &acknowledged) })
	}
	for i := range 4 {
		clients.Go(func() { l.receiveUntilError(ctx, client, urls[i%2]) })
	}
	limit, tick := time.NewTimer(time.Minute), time.NewTicker(time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for acknowledged.Load() < 250 {
		select {
		case <-tick.C:
		case <-limit.C:
			l.Fatalf("only %d sends were acknowledged in a minute", acknowledged.Load())
		}
	}
	must(l, 0, child.Process.Kill())
	killed = true
	cancel()
	clients.Wait()
}

func (l *load) sendUntilError(ctx context.Context, client *awssqs.Client, url string, sender int, acknowledged *atomic.Int64) {
	for i := 0; ; i++ {
		body := fmt.Sprintf("%d/%d/%d", l.round, sender, i)
		in := &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}
		if strings.HasSuffix(url, ".fifo") {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String(fmt.Sprint(i%50)), &body
		}
		if _, err := client.SendMessage(ctx, in); err != nil {
			return
		}
		acknowledged.Add(1)
		l.mu.Lock()
		l.sent[body] = true
		l.mu.Unlock()
	}
}

// receiveUntilError deletes every other message.
func (l *load) receiveUntilError(ctx context.Context, client *awssqs.Client, url string) {
	for i := 0; ; i++ {
		out, err := client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 3, WaitTimeSeconds: 1,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"ApproximateReceiveCount"},
		})
		if err != nil {
			return
		}
		for _, m := range out.Messages {
			count, _ := strconv.Atoi(system(m, "ApproximateReceiveCount"))
			l.mu.Lock()
			l.received[*m.Body] = max(l.received[*m.Body], count)
			if l.mayBeGone == nil {
				l.mayBeGone = map[string]bool{}
			}
			l.mayBeGone[*m.Body] = i%2 == 0
			l.mu.Unlock()
			if i%2 != 0 {
				continue
			}
			if _, err := client.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return
			}
			l.mu.Lock()
			l.deleted[*m.Body] = true
			l.mu.Unlock()
		}
	}
}
