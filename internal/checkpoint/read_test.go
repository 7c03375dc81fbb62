package checkpoint_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// random is a JSON string of n hexadecimal digits, of which compression saves half at most.
func random(n int) string {
	b := make([]byte, n/2)
	_, _ = rand.Read(b)
	return `"` + hex.EncodeToString(b) + `"`
}

func TestAnyJSONSurvives(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for name, data := range map[string]string{
		"large numbers":   `{"n":9007199254740993,"e":1e400,"z":-0.0,"long":123456789012345678901234567890.123456789}`,
		"emptiness":       `{"list":[],"object":{},"null":null,"text":""}`,
		"unicode":         `"什么是 LangGraph？ 🤖 مرحبا \u0000 \ud83e\udd16 ` + "\uFFFE\uFFFF\u2028" + `"`,
		"spaces kept":     `{ "a" : [ 1 , 2 ] }`,
		"100 KB of text":  `"` + strings.Repeat("the same again ", 7000) + `"`,
		"600 KB, random":  random(600 << 10),
		"3 MB of chances": random(3 << 20),
	} {
		thread := fmt.Sprintf("th-%x", name)
		done := f.succeed(t, thread, data)
		cp, err := f.Checkpoint(t.Context(), thread, done.N)
		if err != nil || string(cp.Data) != data {
			t.Errorf("%s: checkpoint holds %d bytes (%v), want the %d that were committed", name, len(cp.Data), err, len(data))
		}
		res, err := f.Result(t.Context(), thread)
		if err != nil || string(res.Data) != data {
			t.Errorf("%s: result holds %d bytes (%v), want the %d that were committed", name, len(res.Data), err, len(data))
		}
		latest, err := f.Latest(t.Context(), thread, 0, 1)
		if err != nil || len(latest) != 1 || string(latest[0].Data) != data {
			t.Errorf("%s: latest are %d checkpoints (%v), want the one committed", name, len(latest), err)
		}
	}
}

// Case: 400 KB (what fits no checkpoint)
func TestWhatFitsNoCheckpointIsRefusedWhole(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rec := f.claim(t, "th-1")
	_, err := f.Commit(t.Context(), last(rec, random(7<<20)))
	wantErr(t, err, checkpoint.ErrTooLarge)
	if got := f.record(t, rec.TaskID); len(got.Steps) != 0 || got.Status != checkpoint.Running {
		t.Errorf("record is %+v, want no step", got)
	}
}

func TestExpiredItemsAreNotRead(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	old := f.succeed(t, "th-1", `"old"`)
	f.pass(91 * 24 * time.Hour)
	_, err := f.Record(t.Context(), old.Record.TaskID)
	wantErr(t, err, checkpoint.ErrNotFound)
	_, err = f.Checkpoint(t.Context(), "th-1", old.N)
	wantErr(t, err, checkpoint.ErrNotFound)
	_, err = f.Result(t.Context(), "th-1")
	wantErr(t, err, checkpoint.ErrNotFound)
	if records, _, err := f.History(t.Context(), "th-1", "", 10); err != nil || len(records) != 0 {
		t.Errorf("history is %+v (%v), want nothing", records, err)
	}
	latest, err := f.Latest(t.Context(), "th-1", 0, 10)
	if err != nil || len(latest) != 1 || latest[0].Data != nil || latest[0].Last {
		t.Errorf("latest are %+v (%v), want only the number", latest, err)
	}
	if done := f.succeed(t, "th-1", `"new"`); done.N != 2 {
		t.Errorf("the next checkpoint has number %d, want 2: expired ones may still be there", done.N)
	}
}

func TestHistoryIsPagedOldestFirst(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var want []task.ID
	for range 7 {
		want = append(want, f.claim(t, "th-1").TaskID)
		f.pass(time.Millisecond)
	}
	f.claim(t, "th-10") // another thread whose id begins alike
	var got []task.ID
	after, pages := "", 0
	for {
		records, next, err := f.History(t.Context(), "th-1", after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			got = append(got, r.TaskID)
		}
		pages++
		if after = next; next == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || pages != 3 {
		t.Errorf("history in %d pages is\n%v\nwant 3 pages and\n%v", pages, got, want)
	}
}

func TestATaskIsFoundByItsMessage(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	sent := *f.now.Load()
	id := task.IDFromMessage("th-1", "m-7", sent)
	f.claimTask(t, id, "m-7")
	f.claim(t, "th-1")
	rec, err := f.FindByMessage(t.Context(), "th-1", "m-7", sent.Add(-time.Hour), sent.Add(time.Hour))
	if err != nil || rec.TaskID != id {
		t.Errorf("found %q (%v), want %q", rec.TaskID, err, id)
	}
	if rec, err = f.FindByMessage(t.Context(), "th-1", "m-7", sent, sent); err != nil || rec.TaskID != id {
		t.Errorf("in the very millisecond found %q (%v), want %q", rec.TaskID, err, id)
	}
	_, err = f.FindByMessage(t.Context(), "th-1", "m-7", sent.Add(time.Hour), sent.Add(2*time.Hour))
	wantErr(t, err, checkpoint.ErrNotFound)
	_, err = f.FindByMessage(t.Context(), "th-1", "m-8", sent.Add(-time.Hour), sent.Add(time.Hour))
	wantErr(t, err, checkpoint.ErrNotFound)
}
