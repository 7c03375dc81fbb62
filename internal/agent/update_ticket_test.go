package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

// tickets is a table of tickets.
type tickets struct {
	held  map[string]task.Ticket
	reads int
	err   error
}

func (s *tickets) Ticket(_ context.Context, id string) (task.Ticket, error) {
	s.reads++
	if s.err != nil {
		return task.Ticket{}, s.err
	}
	if t, ok := s.held[id]; ok {
		return t, nil
	}
	return task.Ticket{}, fmt.Errorf("ticket %s: %w", id, checkpoint.ErrNotFound)
}

func holding(status string, version int64) *tickets {
	return &tickets{held: map[string]task.Ticket{"TK-1001": {ID: "TK-1001", Status: status, Version: version, UpdatedAt: noon.Add(-time.Hour)}}}
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	const legal, same = "legal", "same"
	illegal := func(options string) string { return "it can go to: " + options }
	tests := []struct{ from, to, want string }{
		{"", "open", legal},
		{"", "in_progress", legal},
		{"", "resolved", legal},
		{"", "closed", legal},
		{"open", "open", same},
		{"open", "in_progress", legal},
		{"open", "resolved", illegal("in_progress, closed")},
		{"open", "closed", legal},
		{"in_progress", "open", legal},
		{"in_progress", "in_progress", same},
		{"in_progress", "resolved", legal},
		{"in_progress", "closed", illegal("resolved, open")},
		{"resolved", "open", illegal("closed, in_progress")},
		{"resolved", "in_progress", legal},
		{"resolved", "resolved", same},
		{"resolved", "closed", legal},
		{"closed", "open", legal},
		{"closed", "in_progress", illegal("open")},
		{"closed", "resolved", illegal("open")},
		{"closed", "closed", same},
	}
	for _, tt := range tests {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			t.Parallel()
			store, version := &tickets{}, int64(0)
			if tt.from != "" {
				store, version = holding(tt.from, 7), 7
			}
			c := agent.Config{Tickets: store, Now: func() time.Time { return noon }}
			msg := message(t, c, `{"task":"update_ticket","ticket_id":"TK-1001","status":"`+tt.to+`"}`)
			run := tasktest.NewRun(msg.ID)
			got, err := execute(t, c, run, msg)

			switch tt.want {
			case legal:
				want := fmt.Sprintf(`{"ticket_id":"TK-1001","from":%q,"status":%q,"version":%d,"changed":true}`, tt.from, tt.to, version+1)
				if err != nil || string(got) != want {
					t.Errorf("result: got %s, %v, want %s", got, err, want)
				}
				change := []task.Ticket{{ID: "TK-1001", Status: tt.to, Version: version + 1, UpdatedAt: noon}}
				if diff := cmp.Diff(change, run.Tickets()); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			case same:
				want := fmt.Sprintf(`{"ticket_id":"TK-1001","from":%q,"status":%q,"version":%d,"changed":false}`, tt.from, tt.to, version)
				if err != nil || string(got) != want || len(run.Tickets()) != 0 {
					t.Errorf("got %s, %v, changes %v, want %s without change", got, err, run.Tickets(), want)
				}
			default:
				wantFailure(t, err, task.CodeIllegalChange, fmt.Sprintf("ticket TK-1001 cannot go from %q to %q; from %q %s", tt.from, tt.to, tt.from, tt.want))
				if len(run.Tickets()) != 0 {
					t.Errorf("changes: got %v, want none", run.Tickets())
				}
			}
		})
	}
}

func TestExpectedVersion(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		store    *tickets
		status   string
		expected string
		want     string // of the failure; empty: success
	}{
		"right":               {holding("open", 3), "closed", "3", ""},
		"older":               {holding("open", 3), "closed", "2", "ticket TK-1001 has version 3, not the expected 2"},
		"newer":               {holding("open", 3), "closed", "4", "ticket TK-1001 has version 3, not the expected 4"},
		"before legality":     {holding("open", 3), "resolved", "2", "ticket TK-1001 has version 3, not the expected 2"},
		"also for no change":  {holding("closed", 3), "closed", "2", "ticket TK-1001 has version 3, not the expected 2"},
		"must not exist":      {&tickets{}, "open", "0", ""},
		"exists, but may not": {holding("open", 1), "closed", "0", "ticket TK-1001 has version 1, not the expected 0"},
		"does not exist":      {&tickets{}, "open", "1", "ticket TK-1001 has version 0, not the expected 1"},
		"beyond 2^53":         {holding("open", 9007199254740993), "closed", "9007199254740992", "ticket TK-1001 has version 9007199254740993, not the expected 9007199254740992"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := agent.Config{Tickets: tt.store}
			msg := message(t, c, fmt.Sprintf(`{"task":"update_ticket","ticket_id":"TK-1001","status":%q,"expected_version":%s}`, tt.status, tt.expected))
			run := tasktest.NewRun(msg.ID)
			_, err := execute(t, c, run, msg)
			if tt.want == "" {
				if err != nil || len(run.Tickets()) != 1 {
					t.Errorf("got %v, changes %v, want one change", err, run.Tickets())
				}
				return
			}
			wantFailure(t, err, agent.CodeVersionMismatch, tt.want)
			if len(run.Tickets()) != 0 {
				t.Errorf("changes: got %v, want none", run.Tickets())
			}
		})
	}
}

// A step that lost against another task's change decides anew, on the ticket as it is then.
func TestRepeatedUpdateReadsTheTicketAgain(t *testing.T) {
	t.Parallel()
	store := holding("in_progress", 2)
	c := agent.Config{Tickets: store}
	msg := message(t, c, `{"task":"update_ticket","ticket_id":"TK-1001","status":"resolved"}`)
	run := tasktest.NewRun(msg.ID)
	run.FailCommit(checkpoint.ErrTicketChanged)
	if _, err := execute(t, c, run, msg); !errors.Is(err, checkpoint.ErrTicketChanged) {
		t.Fatalf("first attempt: got %v, want %v", err, checkpoint.ErrTicketChanged)
	}
	store.held["TK-1001"] = task.Ticket{ID: "TK-1001", Status: "closed", Version: 3}
	_, err := execute(t, c, run.Resume(), msg)
	wantFailure(t, err, task.CodeIllegalChange, `from "closed" to "resolved"`)
	if store.reads != 2 {
		t.Errorf("reads: got %d, want 2", store.reads)
	}
}

func TestUpdatedTicketIsNotUpdatedAgain(t *testing.T) {
	t.Parallel()
	store := holding("open", 1)
	c := agent.Config{Tickets: store}
	msg := message(t, c, `{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`)
	run := tasktest.NewRun(msg.ID)
	first, err := execute(t, c, run, msg)
	if err != nil {
		t.Fatal(err)
	}
	again := run.Resume()
	second, err := execute(t, c, again, msg)
	if err != nil || string(first) != string(second) || len(again.Tickets()) != 1 || store.reads != 1 {
		t.Errorf("resumed: got %s, %v, changes %v, reads %d, want %s and nothing more", second, err, again.Tickets(), store.reads, first)
	}
}

func TestUnreadableTicketIsRetried(t *testing.T) {
	t.Parallel()
	down := errors.New("table is down")
	c := agent.Config{Tickets: &tickets{err: down}}
	msg := message(t, c, `{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`)
	run := tasktest.NewRun(msg.ID)
	_, err := execute(t, c, run, msg)
	if !errors.Is(err, down) || task.IsPermanent(err) || len(run.Tickets()) != 0 {
		t.Errorf("got %v, changes %v, want %v, to be retried", err, run.Tickets(), down)
	}
}

func TestUpdateIsStampedInUTC(t *testing.T) {
	t.Parallel()
	c := agent.Config{Tickets: &tickets{}, Now: func() time.Time { return noon.In(time.FixedZone("", 3600)) }}
	msg := message(t, c, `{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`)
	run := tasktest.NewRun(msg.ID)
	if _, err := execute(t, c, run, msg); err != nil {
		t.Fatal(err)
	}
	if got := run.Tickets(); len(got) != 1 || got[0].UpdatedAt != noon {
		t.Errorf("got %v, want one change at %v", got, noon)
	}
}

func wantFailure(t *testing.T, err error, code, message string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %s", code)
	}
	if got := task.FailureOf(err); !task.IsPermanent(err) || got.Code != code || !strings.Contains(got.Message, message) {
		t.Errorf("got %+v (permanent: %t), want a permanent %s with %q", got, task.IsPermanent(err), code, message)
	}
}
