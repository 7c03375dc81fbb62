package checkpoint_test

import (
	"errors"
	"testing"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// Two writers in the same microsecond, one of them with a clock that is 5 s behind.
//
// Case: timestamp as version
func TestClocksDecideAboutNoWrite(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	behind := checkpoint.New(f.api, f.table, checkpoint.Options{Now: func() time.Time { return f.now.Load().Add(-5 * time.Second) }})
	ticket := func(version int64, status string, at time.Time) *task.Ticket {
		return &task.Ticket{ID: "TK-1", Version: version, Status: status, UpdatedAt: at}
	}
	first, second := last(f.claim(t, "th-1"), `"ahead"`), last(f.claim(t, "th-1"), `"behind"`)
	first.Ticket, second.Ticket = ticket(1, "open", f.in(0)), ticket(1, "closed", f.in(-5*time.Second))
	if _, err := f.Commit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := behind.Commit(t.Context(), second); !errors.Is(err, checkpoint.ErrTicketChanged) {
		t.Fatalf("error is %v, want %v: both have read that there is no ticket", err, checkpoint.ErrTicketChanged)
	}
	second.Ticket = ticket(2, "closed", f.in(-5*time.Second))
	done, err := behind.Commit(t.Context(), second)
	if err != nil || done.N != 2 {
		t.Fatalf("checkpoint %d (%v), want number 2 whatever the clock says", done.N, err)
	}
	got, err := f.Ticket(t.Context(), "TK-1")
	if err != nil || got.Version != 2 || got.Status != "closed" {
		t.Errorf("ticket is %+v (%v), want version 2, closed: the later write by an earlier clock", got, err)
	}
	latest, err := f.Latest(t.Context(), "th-1", 0, 10)
	if err != nil || len(latest) != 2 || string(latest[0].Data) != `"behind"` || string(latest[1].Data) != `"ahead"` {
		t.Errorf("checkpoints are %+v (%v), want both, by number", latest, err)
	}
	if res, err := f.Result(t.Context(), "th-1"); err != nil || res.N != 2 {
		t.Errorf("result is %+v (%v), want that of checkpoint 2", res, err)
	}
}
