package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

var modelDown = deadletter.Selection{Reasons: []string{"MODEL_DOWN"}}

// bothKinds runs a test on a standard queue and on a FIFO queue.
func bothKinds(t *testing.T, run func(b *bench)) {
	t.Helper()
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(start(t, fifo))
		})
	}
}

func TestASelectionGoesBackAndTheRestStays(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		var back, stay []letter
		for i := range 15 {
			back = append(back, b.dead("echo", fmt.Sprint("th-", i%4), "MODEL_DOWN"))
			stay = append(stay, b.dead("echo", fmt.Sprint("th-", i%4), "MODEL_REFUSED"))
		}
		dry := b.redrive(modelDown, deadletter.RedriveOptions{DryRun: true})
		if len(b.wire.sent) != 0 || dry.Redriven != 15 || !dry.DryRun {
			t.Errorf("dry run: got %d sent, %+v; want none sent and 15 told", len(b.wire.sent), dry)
		}
		b.wantDead(30)

		r := b.redrive(modelDown, deadletter.RedriveOptions{})
		if r.Redriven != 15 || r.Seen != 30 || r.Unseen != 0 || !r.Whole() {
			t.Errorf("report: got %+v, want 15 of 30 redriven", r)
		}
		if diff := cmp.Diff([]string{"15 MODEL_DOWN echo"}, counts(r.Groups)); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		b.wantDead(15)
		for _, l := range back {
			rec := b.record(l.id)
			if rec.Status != checkpoint.Queued || rec.Error != nil || rec.MessageID == l.messageID {
				t.Errorf("redriven task: got %s, %v, message %s; want queued under a new message", rec.Status, rec.Error, rec.MessageID)
			}
		}
		for _, in := range b.wire.sent {
			if !strings.Contains(*in.MessageBody, `"text":"hello"`) || *in.MessageAttributes["priority"].StringValue != "7" ||
				string(in.MessageAttributes["blob"].BinaryValue) != "\x00\x01\xff" || !strings.HasPrefix(*in.MessageGroupId, "th-") {
				t.Errorf("copy: got %+v, want body, attributes and group of the message", in)
			}
		}
		b.work("")
		for _, l := range back {
			if rec := b.record(l.id); rec.Status != checkpoint.Succeeded || len(rec.Attempts) != 2 {
				t.Errorf("task %s in the end: got %s after %d attempts, want succeeded after 2", l.id, rec.Status, len(rec.Attempts))
			}
		}
		for _, l := range stay {
			if rec := b.record(l.id); rec.Status != checkpoint.Failed || len(rec.Attempts) != 1 {
				t.Errorf("task %s that stays: got %s after %d attempts, want failed after 1", l.id, rec.Status, len(rec.Attempts))
			}
		}
	})
}

// A task whose cause is not mended comes back while others are still being redriven. It is not redriven again and again.
func TestWhatFailsAgainIsRedrivenOnce(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		const n = 20
		for i := range n {
			b.dead("echo", fmt.Sprint("th-", i), "MODEL_DOWN")
		}
		stop := b.keepDeadLettering("MODEL_DOWN")
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute) // in which it would go round for ever
		defer cancel()
		r, err := b.queue().Redrive(ctx, modelDown, deadletter.RedriveOptions{Progress: func(redriven int) {
			if redriven == n/2 {
				b.awaitDead(ctx, n-redriven+1)
			}
		}})
		stop()
		if err != nil || r.Redriven != n || r.Again == 0 {
			b.Errorf("got %d redriven, %d of them failed again, %v; want %d, some of which failed again", r.Redriven, r.Again, err, n)
		}
		b.wantDead(n)
	})
}

// A selection that nothing fits, as with a misspelt reason, says what there is.
func TestASelectionThatNothingFits(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.dead("echo", "th-1", "MODEL_REFUSED")
	b.dead("echo", "th-1", "MODEL_REFUSED")
	b.dead("shout", "th-1", "")
	want := map[string]int{"MODEL_REFUSED": 2, task.CodeDeadLettered: 1}
	if diff := cmp.Diff(want, b.redrive(modelDown, deadletter.RedriveOptions{}).Others); diff != "" {
		t.Errorf("redrive (-want +got):\n%s", diff)
	}
	l, err := b.queue().Look(t.Context(), modelDown)
	if diff := cmp.Diff(want, l.Others); diff != "" || err != nil {
		t.Errorf("look: %v (-want +got):\n%s", err, diff)
	}
	r, err := b.queue().Purge(t.Context(), modelDown, nil)
	if diff := cmp.Diff(want, r.Others); diff != "" || err != nil {
		t.Errorf("purge: %v (-want +got):\n%s", err, diff)
	}
	b.wantDead(3)
}

func TestSelectionsCombine(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	one, two := b.dead("echo", "th-1", "MODEL_DOWN"), b.dead("shout", "th-1", "MODEL_DOWN")
	b.dead("shout", "th-1", "MODEL_REFUSED")
	absent := task.NewID("th-1", time.Now())
	r := b.redrive(deadletter.Selection{Types: []string{"shout"}, Reasons: []string{"MODEL_DOWN"}, TaskIDs: []task.ID{one.id, two.id, absent}}, deadletter.RedriveOptions{})
	if got := b.work(""); !slices.Equal(got, []task.ID{two.id}) || r.Redriven != 1 || !slices.Equal(r.Missing, []task.ID{absent}) || r.Whole() {
		t.Errorf("got %v redriven, %+v; want the one that fits all, and one not found", got, r)
	}
	b.wantDead(2)
}

// died is the answer to everything that a dead process would still have asked.
var errDied = errors.New("the process has died")

// A redrive may end at any point of a message's way. Whatever it leaves, the next one sends each message once.
func TestARedriveDiesAnywhere(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(b *bench, dead func()){
		"before the copy":   func(b *bench, dead func()) { b.wire.before = deathAt("send", dead) },
		"after the copy":    func(b *bench, dead func()) { b.wire.after = deathAt("send", dead) },
		"before the delete": func(b *bench, dead func()) { b.wire.before = deathAt("delete", dead) },
	} {
		for worker, code := range map[string]string{"succeeds": "", "fails again": "MODEL_DOWN_AGAIN"} {
			t.Run(name+", worker "+worker, func(t *testing.T) {
				t.Parallel()
				bothKinds(t, func(b *bench) {
					t := b.T
					var all []letter
					for i := range 12 {
						all = append(all, b.dead("echo", fmt.Sprint("th-", i%3), "MODEL_DOWN"))
					}
					mortal := &mortalStore{Store: b.store}
					b.config.Store = mortal
					die(b, func() { mortal.dead.Store(true) })
					_, _ = b.queue().Redrive(t.Context(), modelDown, deadletter.RedriveOptions{})
					if !mortal.dead.Load() {
						t.Fatal("it did not die")
					}
					b.config.Store, b.wire.before, b.wire.after = b.store, nil, nil
					stop := b.keepWorking(code)
					r := b.redrive(modelDown, deadletter.RedriveOptions{})
					stop()
					if !r.Whole() {
						t.Errorf("the second redrive: got %+v, want nothing left over", r)
					}
					b.wantDead(0)
					copies := b.wire.copies(t, b.config.Tasks)
					for _, l := range all {
						rec := b.record(l.id)
						if n := copies[l.id]; n != 1 || len(rec.Attempts) != 2 {
							t.Errorf("task %s: got %d copies and %d attempts, want 1 and 2: %+v", l.id, n, len(rec.Attempts), rec.Redrives)
						}
					}
				})
			})
		}
	}
}

// deathAt ends the process at the fourth call of the kind, and answers none after it.
func deathAt(kind string, dead func()) func(string, string) error {
	var n atomicCounter
	return func(call, _ string) error {
		if call == kind && n.next() == 4 {
			dead()
		}
		if n.value() >= 4 {
			return errDied
		}
		return nil
	}
}

func TestWhatSQSDoesNotTakeStays(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		fine, bad, behind := b.dead("echo", "th-1", "MODEL_DOWN"), b.dead("echo", "th-2", "MODEL_DOWN"), b.dead("echo", "th-2", "MODEL_DOWN")
		b.wire.before = func(call, what string) error {
			if call == "send" && strings.Contains(what, string(bad.id)) {
				return answered(http.StatusForbidden, "AccessDenied")
			}
			return nil
		}
		r := b.redrive(modelDown, deadletter.RedriveOptions{})
		want, left := 2, 1
		if b.name != "tasks-dlq" { // in a group the later ones must not overtake
			want, left = 1, 2
		}
		if r.Redriven != want || r.Failed != left || r.Whole() || !strings.Contains(r.Problem, "AccessDenied") && left == 1 {
			t.Errorf("got %+v, want %d redriven and %d failed", r, want, left)
		}
		b.wantDead(left)
		if rec := b.record(bad.id); rec.Status != checkpoint.Failed || len(rec.Redrives) != 0 {
			t.Errorf("the one that was refused: got %+v, want it as before", rec)
		}
		b.wire.before = nil
		if r := b.redrive(modelDown, deadletter.RedriveOptions{}); r.Redriven != left || !r.Whole() {
			t.Errorf("the second time: got %+v, want %d redriven", r, left)
		}
		for id, n := range b.wire.copies(t, b.config.Tasks) {
			if n != 1 {
				t.Errorf("task %s was copied %d times, want once", id, n)
			}
		}
		got := b.work("")
		if slices.Index(got, bad.id) > slices.Index(got, behind.id) && left == 2 || len(got) != 3 || !slices.Contains(got, fine.id) {
			t.Errorf("the worker got %v, want all three, those of a group in their order", got)
		}
	})
}

func answered(status int, code string) error {
	return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
		Err:      &smithy.GenericAPIError{Code: code, Message: "no"},
	}}
}

// A copy that is not confirmed may be there: the message is not deleted for it, and no second copy is sent while the first may be
// on its way.
func TestACopyWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{"cut": errLost, "garbled": errGarbled, "a fault of SQS's own": answered(http.StatusServiceUnavailable, "ServiceUnavailable")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, false)
			l := b.dead("echo", "th-1", "MODEL_DOWN")
			b.config.Settle = 50 * time.Millisecond
			b.config.Hide = 3 * time.Second
			b.wire.after = func(string, string) error { return broken }
			began := time.Now()
			r := b.redrive(modelDown, deadletter.RedriveOptions{})
			if r.Uncertain != 1 || r.Redriven != 0 || r.Whole() || len(b.wire.sent) != 1 {
				t.Errorf("while the copy waits: got %+v and %d copies after %v, want it uncertain and one copy", r, len(b.wire.sent), time.Since(began))
			}
			b.wantDead(1)
			b.wire.after = nil
			b.work("")
			if r = b.redrive(modelDown, deadletter.RedriveOptions{}); r.Finished != 1 || len(b.wire.sent) != 1 {
				t.Errorf("when a worker had it: got %+v and %d copies, want it finished and one copy", r, len(b.wire.sent))
			}
			b.wantDead(0)
			if rec := b.record(l.id); rec.Status != checkpoint.Succeeded || len(rec.Attempts) != 2 {
				t.Errorf("task: got %s after %d attempts, want succeeded after 2", rec.Status, len(rec.Attempts))
			}
		})
	}
}

func TestResendDoesNotWait(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.dead("echo", "th-1", "MODEL_DOWN")
	b.config.Settle = time.Hour
	b.config.Hide = 3 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	b.wire.after = func(string, string) error {
		cancel() // nobody waits an hour
		return errLost
	}
	if _, err := b.queue().Redrive(ctx, modelDown, deadletter.RedriveOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Redrive: got %v, want %v", err, context.Canceled)
	}
	b.wire.after = nil
	if r := b.redrive(modelDown, deadletter.RedriveOptions{Resend: true}); r.Redriven != 1 || len(b.wire.sent) != 2 {
		t.Errorf("got %+v and %d copies, want a second copy", r, len(b.wire.sent))
	}
	if got := b.work(""); len(got) != 2 || b.record(got[0]).Status != checkpoint.Succeeded || len(b.record(got[0]).Attempts) != 2 {
		t.Errorf("the worker got %v, want two copies and one more attempt", got)
	}
}

// What is already done is redriven without effect, and counted.
func TestSucceededTasksAreCounted(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		var done []letter
		for range 3 {
			l := b.dead("echo", "th-1", "")
			b.succeed(b.claim(l))
			done = append(done, l)
		}
		b.dead("echo", "th-1", "MODEL_DOWN")
		r := b.redrive(deadletter.Selection{Types: []string{"echo"}}, deadletter.RedriveOptions{})
		if r.Redriven != 4 || r.Succeeded != 3 {
			t.Errorf("got %+v, want 4 redriven, 3 of them already succeeded", r)
		}
		b.work("")
		for _, l := range done {
			if rec := b.record(l.id); rec.Status != checkpoint.Succeeded || len(rec.Attempts) != 1 || rec.ResultN == 0 {
				t.Errorf("task %s: got %s after %d attempts, want succeeded after 1", l.id, rec.Status, len(rec.Attempts))
			}
		}
		b.wantDead(0)
	})
}

func TestTasksThatGoOnAreLeft(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.claim(b.dead("echo", "th-1", "")) // a worker is at it
	moved := b.dead("echo", "th-1", "MODEL_DOWN")
	end := checkpoint.End{Status: checkpoint.Retrying, Failure: task.Failure{Code: "MODEL_DOWN"}}
	if err := b.store.End(t.Context(), b.claim(letter{moved.id, "newer"}), end); err != nil {
		t.Fatal(err)
	}
	r := b.redrive(deadletter.Selection{Types: []string{"echo"}}, deadletter.RedriveOptions{})
	want := map[string]int{dlq.CodeInProgress: 1, dlq.CodeMovedOn: 1}
	if diff := cmp.Diff(want, r.Left); diff != "" || r.Redriven != 0 {
		t.Errorf("got %+v, want none redriven, left (-want +got):\n%s", r, diff)
	}
	if r = b.redrive(deadletter.Selection{Reasons: []string{dlq.CodeMovedOn}}, deadletter.RedriveOptions{}); r.Redriven != 1 {
		t.Errorf("by name: got %+v, want one redriven", r)
	}
	b.wantDead(1)
}

func TestAGroupGoesBackInItsOrder(t *testing.T) {
	t.Parallel()
	b := start(t, true)
	want := map[string][]task.ID{}
	for i := range 45 { // more than ten of a group: those behind show when the first are gone
		thread := fmt.Sprint("th-", i%3)
		if i%5 == 0 {
			b.dead("shout", thread, "MODEL_REFUSED")
			continue
		}
		want[thread] = append(want[thread], b.dead("echo", thread, "MODEL_DOWN").id)
	}
	if r := b.redrive(modelDown, deadletter.RedriveOptions{}); r.Redriven != 36 || !r.Whole() {
		t.Errorf("got %+v, want 36 redriven", r)
	}
	got := map[string][]task.ID{}
	for _, id := range b.work("") {
		got[id.Thread()] = append(got[id.Thread()], id)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order within the groups (-want +got):\n%s", diff)
	}
	b.wantDead(9)
}

// A task that was sent less than five minutes ago: its copy must not be taken for the first message.
func TestACopyIsNotDeduplicatedAway(t *testing.T) {
	t.Parallel()
	b := start(t, true)
	l := b.dead("echo", "th-1", "MODEL_DOWN")
	body, group, id := fmt.Sprintf(`{"task":"echo","task_id":%q,"text":"hello"}`, l.id), "th-1", string(l.id)
	if _, err := b.wire.Client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &b.config.URL, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &id}); err != nil {
		t.Fatal(err)
	}
	b.work("MODEL_DOWN")
	b.redrive(deadletter.Selection{TaskIDs: []task.ID{l.id}, Reasons: []string{"MODEL_DOWN"}}, deadletter.RedriveOptions{})
	if got := b.work(""); len(got) != 1 {
		t.Errorf("the worker got %v, want the copy", got)
	}
}

func TestTheRateIsKept(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	for range 11 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	began := time.Now()
	told := 0
	b.redrive(modelDown, deadletter.RedriveOptions{Rate: 20, Progress: func(n int) { told = max(told, n) }})
	if took := time.Since(began); took < 500*time.Millisecond || told != 11 {
		t.Errorf("11 messages at 20 a second took %v and %d were told, want half a second or more, and 11", took, told)
	}
}

func TestAnInterruptedRedriveGivesEverythingBack(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(b *bench) {
		t := b.T
		for i := range 40 {
			b.dead("echo", fmt.Sprint("th-", i), "MODEL_DOWN")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := b.queue().Redrive(ctx, modelDown, deadletter.RedriveOptions{Progress: func(n int) {
			if n == 5 {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) || r.Redriven < 5 || r.Redriven > 5+8 || r.Uncertain != 0 || r.Failed != 0 || !r.EndedEarly {
			t.Errorf("got %+v, %v; want about 5 redriven, none in between, and %v", r, err, context.Canceled)
		}
		b.wantDead(40 - r.Redriven)
		if got := len(b.work("")); got != r.Redriven {
			t.Errorf("the worker got %d, want the %d that were redriven", got, r.Redriven)
		}
	})
}

func TestOneUnavailableRecordDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	bad := b.dead("echo", "th-bad", "MODEL_DOWN")
	b.dead("echo", "th-good", "MODEL_DOWN")
	b.config.Store = brokenStore{b.store, bad.id}
	r := b.redrive(deadletter.Selection{Types: []string{"echo"}}, deadletter.RedriveOptions{})
	if r.Redriven != 1 || r.Failed != 1 || !strings.Contains(r.Problem, "does not answer") {
		t.Errorf("got %+v, want one redriven and one failed", r)
	}
	b.wantDead(1)
}
