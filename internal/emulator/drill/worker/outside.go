package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"agentworker/internal/agent"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/drill/ledger"
	"agentworker/internal/task"
)

// Every output says which call it comes from, as "call#<n>": the last is the step's own, those before it are of the steps
// that it builds on.
func mention(n int64) string { return fmt.Sprintf("call#%d", n) }

// retriever calls the ledger for each question; a question names its job, since retrieving has no effect key.
type retriever struct{ ledger.Client }

var jobName = regexp.MustCompile(`job-[0-9]+`)

func (r retriever) Retrieve(ctx context.Context, query string, _ int) ([]agent.Passage, error) {
	n, err := r.Call(ctx, jobName.FindString(query)+"/retrieve")
	if err != nil {
		return nil, err
	}
	return []agent.Passage{{Document: "ledger", Number: 1, Text: mention(n)}}, nil
}

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
	text := mention(n)
	for _, p := range r.Passages {
		text = p.Text + " " + text
	}
	return agent.Answer{Text: text, Citations: []agent.Citation{}, Model: "ledger"}, nil
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
