package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// The tools that every [AgentRun] has.
const (
	ToolSearchDocuments = "search_documents"
	ToolGetTicket       = "get_ticket"
	ToolUpdateTicket    = "update_ticket"
)

// BuiltinTools are search_documents, get_ticket and update_ticket. To add others, make a [Toolbox] of these and them.
func BuiltinTools(c Config) []Tool {
	c = c.withDefaults()
	return []Tool{
		{
			Name: ToolSearchDocuments,
			Description: "Finds passages of the documents that fit a query, best first. Cite a passage in your answer by repeating its \"cite\" text. " +
				"An empty list means that the documents hold nothing about it.",
			Schema: jsontext.Value(`{"type":"object","properties":{"query":{"type":"string","minLength":1,"description":"what to look for, in the words of the documents"}},"required":["query"],"additionalProperties":false}`),
			Run:    searchDocuments{c.Retriever}.run,
		},
		{
			Name:        ToolGetTicket,
			Description: "Gives a ticket's status and version.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"ticket_id":{"type":"string","minLength":1}},"required":["ticket_id"],"additionalProperties":false}`),
			Run:         getTicket{c.Tickets}.run,
		},
		{
			Name:        ToolUpdateTicket,
			Description: "Moves a ticket to another status: open to in_progress or closed, in_progress to resolved or open, resolved to closed or in_progress, closed to open. A ticket that does not exist yet is made.",
			Schema: jsontext.Value(`{"type":"object","properties":{"ticket_id":{"type":"string","minLength":1},"status":{"enum":["open","in_progress","resolved","closed"]},` +
				`"expected_version":{"type":"integer","minimum":0,"description":"the version that get_ticket gave; the update fails if it has changed since"}},"required":["ticket_id","status"],"additionalProperties":false}`),
			Run: ticketTool{updateTicket{tickets: c.Tickets, now: c.Now}}.run,
		},
	}
}

func builtinToolbox(c Config) *Toolbox {
	b, err := NewToolbox(BuiltinTools(c)...)
	if err != nil {
		// What is written above is sound, which a test makes sure of.
		panic(err)
	}
	return b
}

// found is what search_documents gives.
type found struct {
	Passages []foundPassage `json:"passages"`
}

type foundPassage struct {
	Cite string `json:"cite"` // how an answer refers to the passage
	Passage
}

type searchDocuments struct{ retriever Retriever }

// passagesPerSearch is more than a single question takes: the model reads them and may search but a few times.
const passagesPerSearch = 5

func (s searchDocuments) run(ctx context.Context, call ToolCall) (any, error) {
	var in struct {
		Query string `json:"query"`
	}
	if err := call.Decode(&in); err != nil {
		return nil, err
	}
	passages, err := s.retriever.Retrieve(ctx, in.Query, passagesPerSearch)
	if err != nil {
		return nil, fmt.Errorf("search documents: %w", err)
	}
	out := found{Passages: []foundPassage{}}
	for _, p := range passages {
		out.Passages = append(out.Passages, foundPassage{Cite: citeMark(p), Passage: p})
	}
	return out, nil
}

func citeMark(p Passage) string { return fmt.Sprintf("[%s#%d]", p.Document, p.Number) }

type getTicket struct{ tickets Tickets }

func (g getTicket) run(ctx context.Context, call ToolCall) (any, error) {
	var in struct {
		TicketID string `json:"ticket_id"`
	}
	if err := call.Decode(&in); err != nil {
		return nil, err
	}
	if err := task.CheckTicketID(in.TicketID); err != nil {
		return nil, task.Permanent(fmt.Errorf("ticket_id %w", err))
	}
	ticket, err := g.tickets.Ticket(ctx, in.TicketID)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, task.Permanent(fmt.Errorf("there is no ticket %s", in.TicketID))
	}
	if err != nil {
		return nil, fmt.Errorf("read ticket %s: %w", in.TicketID, err)
	}
	return ticket, nil
}

// ticketTool changes a ticket as the task type does, in the transaction that commits the call: a call that is repeated
// after a crash finds the ticket as it was.
type ticketTool struct{ updateTicket }

func (u ticketTool) run(ctx context.Context, call ToolCall) (any, error) {
	var in TicketUpdate
	if err := call.Decode(&in); err != nil {
		return nil, err
	}
	if errs := checkTicketUpdate(in); len(errs) > 0 {
		return nil, task.Permanent(errs)
	}
	return u.update(ctx, in, call.Effects)
}
