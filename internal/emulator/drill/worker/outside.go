package main

import (
	"context"
	"fmt"
	"strings"

	"agentworker/internal/agent"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/task"
)

// Every output says which call it comes from, as "call#<n>": the last is the step's own, those before it are of the steps
// that it builds on.
func mention(n int64) string { return fmt.Sprintf("call#%d", n) }

// retriever finds nothing: finding has no effect that could be repeated.
type retriever struct{}

func (retriever) Retrieve(context.Context, string, int) ([]agent.Passage, error) { return nil, nil }

// model calls the ledger for each answer, unless the question asks it to refuse.
type model struct{ ledger.Client }

func (m model) Generate(ctx context.Context, r agent.Request) (agent.Answer, error) {
	if strings.Contains(r.Question, "refuse") {
		return agent.Answer{}, task.Failf("DRILL_REFUSED", "the model was told to refuse")
	}
	n, err := m.Call(ctx, r.EffectKey)
	if err != nil {
		return agent.Answer{}, err
	}
	return agent.Answer{Text: mention(n), Citations: []agent.Citation{}, Model: "ledger"}, nil
}

// tickets reads tickets, sometimes in vain.
type tickets struct {
	ledger.Client
	store *checkpoint.Store
}

func (t tickets) Ticket(ctx context.Context, id string) (task.Ticket, error) {
	if err := t.Look(ctx, "ticket "+id); err != nil {
		return task.Ticket{}, err
	}
	return t.store.Ticket(ctx, id)
}
