package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// UpdateTicket is the name of the task type that moves a ticket to another status.
const UpdateTicket = "update_ticket"

// CodeVersionMismatch is the code of an update whose expected_version is not the ticket's.
const CodeVersionMismatch = "VERSION_MISMATCH"

// The statuses of a ticket, in the order in which it usually goes through them.
const (
	TicketOpen       = "open"
	TicketInProgress = "in_progress"
	TicketResolved   = "resolved"
	TicketClosed     = "closed"
)

var ticketStatuses = []string{TicketOpen, TicketInProgress, TicketResolved, TicketClosed}

// transitions are the statuses that a ticket can go to from each status. A ticket that does not exist yet
// can begin with any: it may have been worked on elsewhere.
var transitions = map[string][]string{
	TicketOpen:       {TicketInProgress, TicketClosed},
	TicketInProgress: {TicketResolved, TicketOpen},
	TicketResolved:   {TicketClosed, TicketInProgress}, // the latter reopens it
	TicketClosed:     {TicketOpen},                     // reopens it
}

// TicketUpdate is the input of an [UpdateTicket] task.
type TicketUpdate struct {
	TicketID string `json:"ticket_id"`
	Status   string `json:"status"`
	// ExpectedVersion, where given, must be the ticket's version before the update; 0: the ticket must not
	// exist yet.
	ExpectedVersion *int64 `json:"expected_version"`
}

// TicketResult is the result of an [UpdateTicket] task.
type TicketResult struct {
	TicketID string `json:"ticket_id"`
	From     string `json:"from"` // empty: the update created the ticket
	Status   string `json:"status"`
	Version  int64  `json:"version"`
	Changed  bool   `json:"changed"` // false: it had the status already
}

type updateTicket struct {
	tickets Tickets
	now     func() time.Time
}

func (u updateTicket) definition() task.Definition[TicketUpdate, TicketResult] {
	return task.Definition[TicketUpdate, TicketResult]{
		Name:    UpdateTicket,
		Ordered: true,
		Check:   checkTicketUpdate,
		Thread:  func(in TicketUpdate) string { return task.TicketThread(in.TicketID) },
		Run:     u.run,
	}
}

func (u updateTicket) run(ctx context.Context, run task.Run, in TicketUpdate) (TicketResult, error) {
	return task.LastStep(ctx, run, "update", func(ctx context.Context, effects *task.Effects) (TicketResult, error) {
		return u.update(ctx, in, effects)
	})
}

// update is called inside a step, where it reads the ticket: when another task changes it meanwhile, the step is run
// again and must decide anew.
func (u updateTicket) update(ctx context.Context, in TicketUpdate, effects *task.Effects) (TicketResult, error) {
	ticket, err := u.tickets.Ticket(ctx, in.TicketID)
	if errors.Is(err, checkpoint.ErrNotFound) {
		ticket, err = task.Ticket{ID: in.TicketID}, nil
	}
	if err != nil {
		return TicketResult{}, fmt.Errorf("read ticket %s: %w", in.TicketID, err)
	}
	if want := in.ExpectedVersion; want != nil && *want != ticket.Version {
		return TicketResult{}, task.Failf(CodeVersionMismatch,
			"ticket %s has version %d, not the expected %d", in.TicketID, ticket.Version, *want)
	}

	result := TicketResult{TicketID: in.TicketID, From: ticket.Status, Status: in.Status, Version: ticket.Version}
	if in.Status == ticket.Status {
		return result, nil
	}
	if legal := transitions[ticket.Status]; ticket.Version > 0 && !slices.Contains(legal, in.Status) {
		return TicketResult{}, task.Failf(task.CodeIllegalChange,
			"ticket %s cannot go from %q to %q; from %q it can go to: %s",
			in.TicketID, ticket.Status, in.Status, ticket.Status, strings.Join(legal, ", "))
	}
	result.Version, result.Changed = ticket.Version+1, true
	effects.SetTicket(task.Ticket{
		ID:        in.TicketID,
		Status:    in.Status,
		Version:   result.Version,
		UpdatedAt: u.now().UTC(),
	})
	return result, nil
}

func checkTicketUpdate(in TicketUpdate) (errs task.FieldErrors) {
	if err := task.CheckTicketID(in.TicketID); err != nil {
		errs = append(errs, task.FieldError{Field: "ticket_id", Problem: err.Error()})
	}
	if !slices.Contains(ticketStatuses, in.Status) {
		errs = append(errs, task.FieldError{Field: "status", Problem: "must be one of " + strings.Join(ticketStatuses, ", ")})
	}
	if in.ExpectedVersion != nil && *in.ExpectedVersion < 0 {
		errs = append(errs, task.FieldError{Field: "expected_version", Problem: "must not be negative"})
	}
	return errs
}
