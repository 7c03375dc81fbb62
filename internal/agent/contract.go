package agent

import (
	"context"

	"agentworker/internal/agent/chat"
	"agentworker/internal/task"
)

// Passage is a piece of a document that is small enough to be cited.
type Passage struct {
	Document string `json:"document"` // names the document within its collection
	Number   int    `json:"passage"`  // of the passage within the document, from 1
	Title    string `json:"title,omitempty"`
	Text     string `json:"text"`
}

// Retriever finds passages. Implementations are safe for concurrent use.
type Retriever interface {
	// Retrieve gives the passages that fit the query, best first, at most k of them. That nothing fits
	// is no error: the list is empty then.
	Retrieve(ctx context.Context, query string, k int) ([]Passage, error)
}

// Model answers questions from passages. Implementations are safe for concurrent use.
type Model interface {
	// Generate answers the request. It says so in the answer when the passages do not answer the question.
	Generate(ctx context.Context, r Request) (Answer, error)
}

// Request is one question to a [Model].
type Request struct {
	Question  string
	Turns     []Turn    // of the conversation so far, oldest first, a bounded number
	Passages  []Passage // best first; empty: the documents hold nothing about the question
	EffectKey string    // the same whenever the same call is repeated: to be sent as its idempotency key
}

// Turn is one question of a conversation with its answer.
type Turn struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// Answer is what a [Model] says.
type Answer struct {
	Text      string
	Citations []Citation // of passages of the request; the text refers to the first as [1]
	Model     string     // names the model for the reader of the result
	Usage     chat.Usage // what the answer cost; zero: nothing
}

// Citation names the passage that supports an answer.
type Citation struct {
	Document string `json:"document"`
	Passage  int    `json:"passage"`
	Title    string `json:"title,omitempty"`
	Quote    string `json:"quote,omitempty"` // empty where the answer itself repeats the passage's words
}

// Tickets reads tickets. Implementations are safe for concurrent use.
type Tickets interface {
	// Ticket reads the ticket as it is now, strongly consistent. The error is
	// [agentworker/internal/checkpoint.ErrNotFound] when there is none.
	Ticket(ctx context.Context, id string) (task.Ticket, error)
}
