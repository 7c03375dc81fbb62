package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/infra/agentctl/deadletter"
	"agentworker/internal/checkpoint"
	"agentworker/internal/dlq"
	"agentworker/internal/task"
)

func counts(groups []deadletter.Group) []string {
	list := []string{}
	for _, g := range groups {
		list = append(list, fmt.Sprintf("%d %s %s", g.Count, g.Code, g.Task))
	}
	return list
}

func (b *bench) look(s deadletter.Selection) deadletter.Listing {
	b.Helper()
	l, err := b.queue().Look(b.Context(), s)
	if err != nil {
		b.Fatalf("Look: %v", err)
	}
	return l
}

func TestAThousandDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	for i := range 1000 {
		b.put(fmt.Sprintf(`{"task":"echo","task_id":%q,"text":"x"}`, task.NewID(fmt.Sprint("th-", i%7), time.Now())), "g")
	}
	l := b.look(deadletter.Selection{})
	if l.Seen != 1000 || !l.Complete || len(l.Groups) != 1 || l.Groups[0].Count != 1000 || l.Oldest.IsZero() {
		t.Errorf("got %+v, want 1,000 in one group, complete", l)
	}
	b.wantDead(1000)
}

func TestALookGroupsByTypeAndReasonAndWritesNothing(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	var unreached letter
	for range 3 {
		b.dead("echo", "th-1", "MODEL_DOWN")
	}
	for range 2 {
		unreached = b.dead("shout", "th-1", "")
	}
	b.succeed(b.claim(b.dead("echo", "th-1", "")))
	b.claim(b.dead("echo", "th-1", ""))
	b.put("broken", "g")
	l := b.look(deadletter.Selection{})
	want := []string{"3 MODEL_DOWN echo", "2 DEAD_LETTERED shout", "1 MALFORMED_MESSAGE ", "1 ALREADY_SUCCEEDED echo", "1 BEING_WORKED_ON echo"}
	if diff := cmp.Diff(want, counts(l.Groups)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if got := b.record(unreached.id); got.Status != checkpoint.Queued {
		t.Errorf("the look made the task %s, want it left queued", got.Status)
	}
	l = b.look(deadletter.Selection{Types: []string{"echo"}, Reasons: []string{"MODEL_DOWN", dlq.CodeSucceeded}})
	if diff := cmp.Diff([]string{"3 MODEL_DOWN echo", "1 ALREADY_SUCCEEDED echo"}, counts(l.Groups)); diff != "" {
		t.Errorf("selected groups (-want +got):\n%s", diff)
	}
	b.wantDead(8)
}

// A group in flight is locked: a pass shows of it what one receive brings, and it takes several to show the first ten of
// each.
func TestTheFirstTenOfEachGroupAreListed(t *testing.T) {
	t.Parallel()
	b := start(t, true)
	for i := range 24 { // in turns
		b.dead("echo", fmt.Sprint("th-", i%3), "MODEL_DOWN")
	}
	if l := b.look(deadletter.Selection{}); l.Seen != 24 || !l.Complete {
		t.Errorf("got %d seen, complete %v; want 24, complete", l.Seen, l.Complete)
	}
	for range 15 {
		b.dead("echo", "th-long", "MODEL_DOWN")
	}
	if l := b.look(deadletter.Selection{}); l.Seen != 34 || l.Approximate != 39 || l.Complete {
		t.Errorf("with a long group: got %d seen of %d, complete %v; want 34 of 39, not complete", l.Seen, l.Approximate, l.Complete)
	}
	b.wantDead(39)
}

// What an interruption breaks off is no trouble with a record.
func TestAnInterruptedLookSaysNothingOfRecords(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	b.dead("echo", "th-1", "MODEL_DOWN")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var logs bytes.Buffer
	b.config.Logger = slog.New(slog.NewTextHandler(&logs, nil))
	b.config.Store = interruptedStore{b.store, interrupt}
	if _, err := b.queue().Look(ctx, deadletter.Selection{}); !errors.Is(err, context.Canceled) || logs.Len() > 0 {
		t.Errorf("got %v, logged %q; want %v and nothing", err, logs.String(), context.Canceled)
	}
	b.wantDead(1)
}

func TestAMessageIsShownBesideItsRecord(t *testing.T) {
	t.Parallel()
	b := start(t, false)
	l := b.dead("echo", "th-1", "MODEL_DOWN")
	b.dead("echo", "th-1", "MODEL_DOWN")
	for _, id := range []string{string(l.id), l.messageID} {
		got, err := b.queue().Show(t.Context(), id)
		if err != nil || len(got) != 1 {
			t.Fatalf("Show(%s): got %+v, %v; want one", id, got, err)
		}
		s := got[0]
		if s.MessageID != l.messageID || s.TaskID != l.id || s.Code != "MODEL_DOWN" || s.Body == "" || *s.Attributes["priority"].StringValue != "7" ||
			len(s.Record.Attempts) != 1 || s.Record.Attempts[0].Error.Code != "MODEL_DOWN" || s.System["MessageGroupId"] != "th-1" {
			t.Errorf("got %+v, want message, attributes and attempts", s)
		}
	}
	if got, err := b.queue().Show(t.Context(), "nobody"); err != nil || len(got) != 0 {
		t.Errorf("Show of nothing: got %+v, %v; want none", got, err)
	}
	b.wantDead(2)
}
