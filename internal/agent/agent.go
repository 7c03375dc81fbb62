// Package agent holds the task types: what an agent can be asked to do. The list of them is [Types].
package agent

import (
	"time"

	"agentworker/internal/task"
)

// Config is what the task types work with. With a zero Config their messages can be checked but not run,
// which is all that submitting takes.
type Config struct {
	Retriever Retriever
	Model     Model
	Tickets   Tickets
	Now       func() time.Time // nil: the system's clock
}

// Types lists every task type. A new one is a [task.Definition] in a file of its own and a line here.
func Types(c Config) []task.Type {
	if c.Now == nil {
		c.Now = time.Now
	}
	return []task.Type{
		ragQuery{retriever: c.Retriever, model: c.Model}.definition().Type(),
		updateTicket{tickets: c.Tickets, now: c.Now}.definition().Type(),
	}
}
