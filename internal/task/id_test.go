package task_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"agentworker/internal/task"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("x", task.MaxThreadIDLength)
	tests := map[string]struct {
		text       string
		wantThread string // "": it is refused
		wantError  string
	}{
		"plain":                  {"th-1." + ulidA, "th-1", ""},
		"thread with dots":       {"a.b..c." + ulidA, "a.b..c", ""},
		"thread ending in a dot": {"a.." + ulidA, "a.", ""},
		"every character":        {"0_.:@=+-Z." + ulidA, "0_.:@=+-Z", ""},
		"thread like a ULID":     {ulidA + "." + ulidA, ulidA, ""},
		"longest":                {longest + "." + ulidA, longest, ""},
		"thread one too long":    {longest + "x." + ulidA, "", "at most 100"},
		"empty":                  {"", "", "form"},
		"no dot":                 {ulidA, "", "form"},
		"no thread":              {"." + ulidA, "", "not be empty"},
		"no ULID":                {"th-1.", "", "ULID"},
		"lower-case ULID":        {"th-1." + strings.ToLower(ulidA), "", "upper case"},
		"one lower-case letter":  {"th-1." + ulidA[:25] + "b", "", "upper case"},
		"ULID one short":         {"th-1." + ulidA[:25], "", "ULID"},
		"ULID one long":          {"th-1." + ulidA + "A", "", "ULID"},
		"not base 32":            {"th-1." + ulidA[:25] + "U", "", "ULID"},
		"looks like a 1":         {"th-1." + ulidA[:25] + "I", "", "ULID"},
		"beyond 128 bits":        {"th-1.8" + ulidA[1:], "", "ULID"},
		"space before":           {" th-1." + ulidA, "", "consist of"},
		"line end after":         {"th-1." + ulidA + "\n", "", "ULID"},
		"line end in the thread": {"th-1\n." + ulidA, "", "consist of"},
		"hash":                   {"a#b." + ulidA, "", "consist of"},
		"slash":                  {"../x." + ulidA, "", "consist of"},
		"begins with a dot":      {".x." + ulidA, "", "consist of"},
		"Chinese":                {"线程." + ulidA, "", "consist of"},
		"NUL":                    {"a\x00." + ulidA, "", "consist of"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, err := task.ParseID(tt.text)
			if tt.wantThread == "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantError) {
					t.Fatalf("got %q, %v, want an error with %q", id, err, tt.wantError)
				}
				return
			}
			if err != nil || string(id) != tt.text {
				t.Fatalf("got %q, %v, want %q", id, err, tt.text)
			}
			if got := id.Thread(); got != tt.wantThread {
				t.Errorf("thread: got %q, want %q", got, tt.wantThread)
			}
			if got := id.ULID(); got != ulidA {
				t.Errorf("ULID: got %q, want %q", got, ulidA)
			}
		})
	}
}

// Ids are message group and deduplication ids as well: at most 128 characters from the list that SQS takes.
// Source: Amazon SQS API Reference, "SendMessage".
func TestIDsFitSQS(t *testing.T) {
	t.Parallel()
	const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	fits := func(s string) bool {
		for _, c := range s {
			switch {
			case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', strings.ContainsRune(punctuation, c):
			default:
				return false
			}
		}
		return s != "" && len(s) <= 128
	}
	rapid.Check(t, func(t *rapid.T) {
		thread := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9][!-~]{0,101}`)).Draw(t, "thread")
		if task.CheckThreadID(thread) != nil {
			return
		}
		id := task.NewID(thread, noon)
		if len(id) > 127 {
			t.Errorf("id of %d characters, want at most 127", len(id))
		}
		for _, s := range []string{string(id), id.Thread()} {
			if !fits(s) {
				t.Errorf("%q does not fit SQS", s)
			}
			if strings.ContainsAny(s, "#/?% ") {
				t.Errorf("%q needs escaping in a key or a path", s)
			}
		}
		if back, err := task.ParseID(string(id)); err != nil || back != id || back.Thread() != thread {
			t.Errorf("parsed back: got %q of thread %q, %v, want %q of %q", back, back.Thread(), err, id, thread)
		}
	})
}

func TestLimitsOfIDs(t *testing.T) {
	t.Parallel()
	if got := task.CheckThreadID(strings.Repeat("x", 100)); got != nil {
		t.Errorf("thread id of 100 characters: got %v, want none", got)
	}
	if got := task.CheckThreadID(strings.Repeat("x", 101)); got == nil {
		t.Error("thread id of 101 characters: got no error")
	}
	longest := strings.Repeat("x", task.MaxTicketIDLength)
	if got := task.CheckTicketID(longest); got != nil {
		t.Errorf("ticket id of %d characters: got %v, want none", len(longest), got)
	}
	if got := task.CheckThreadID(task.TicketThread(longest)); got != nil {
		t.Errorf("the longest ticket id's thread: got %v, want none", got)
	}
	if got := task.CheckTicketID(longest + "x"); got == nil {
		t.Errorf("ticket id of %d characters: got no error", len(longest)+1)
	}
	if got := task.CheckThreadID(task.NewThreadID(noon)); got != nil {
		t.Errorf("a new thread's id: got %v, want none", got)
	}
	if got := task.CheckThreadID(task.Unparsed); got != nil {
		t.Errorf("the thread of unreadable messages: got %v, want none", got)
	}
}

func TestIDFromMessage(t *testing.T) {
	t.Parallel()
	const message = "5fea7756-0ea4-451a-a703-a558b933e274"
	first := task.IDFromMessage("th-1", message, noon)
	for range 3 {
		if again := task.IDFromMessage("th-1", message, noon); again != first {
			t.Errorf("redelivery: got %q, want %q", again, first)
		}
	}
	if _, err := task.ParseID(string(first)); err != nil {
		t.Errorf("got %q: %v", first, err)
	}
	if got := ulid.MustParseStrict(first.ULID()).Timestamp(); !got.Equal(noon) {
		t.Errorf("time in the id: got %v, want the send time %v", got, noon)
	}
	for what, other := range map[string]task.ID{
		"another message":   task.IDFromMessage("th-1", message+"x", noon),
		"another send time": task.IDFromMessage("th-1", message, noon.Add(time.Millisecond)),
		"another thread":    task.IDFromMessage("th-2", message, noon),
		"no message id":     task.IDFromMessage("th-1", "", noon),
	} {
		if other == first {
			t.Errorf("%s: got the same id %q", what, other)
		}
	}
	// A hand-made event may lack the send time, and a clock may be anywhere.
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Unix(0, 0), time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		id := task.IDFromMessage("th-1", message, at)
		if again := task.IDFromMessage("th-1", message, at); id != again {
			t.Errorf("sent at %v: got %q, then %q", at, id, again)
		}
		if _, err := task.ParseID(string(id)); err != nil {
			t.Errorf("sent at %v: got %q: %v", at, id, err)
		}
	}
}

func TestNewIDsAreDistinctAndSorted(t *testing.T) {
	t.Parallel()
	if a, b := task.NewID("t", noon), task.NewID("t", noon.Add(time.Millisecond)); a >= b {
		t.Errorf("got %q before %q, want the later id to sort behind", a, b)
	}
	const writers, each = 8, 500
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				id, thread := task.NewID("t", noon), task.NewThreadID(noon)
				mu.Lock()
				seen[string(id)], seen[thread] = true, true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if got, want := len(seen), 2*writers*each; got != want {
		t.Errorf("distinct ids made in one millisecond: got %d, want %d", got, want)
	}
}

func TestSentencesAboutIDsFollowAFieldsName(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", strings.Repeat("x", 300), "a#b", "a b"} {
		if err := task.CheckThreadID(s); err == nil || !strings.HasPrefix(err.Error(), "must ") {
			t.Errorf("%.10q: got %v, want a sentence that begins with must", s, err)
		}
	}
	if got, want := fmt.Sprint(task.CheckThreadID(strings.Repeat("x", 300))), "must be at most 100 characters long, not 300"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
