// Package agent holds the task types: what an agent can be asked to do. The list of them is [Types].
package agent

import (
	"time"

	"agentworker/internal/agent/chat"
	"agentworker/internal/task"
)

// Config is what the task types work with. With a zero Config their messages can be checked but not run,
// which is all that submitting takes.
type Config struct {
	Retriever Retriever
	Model     Model
	Tickets   Tickets
	Now       func() time.Time // nil: the system's clock
	// Chat is the model of agent_run.
	Chat chat.Model
	// Tools are what agent_run's model may call; nil: [BuiltinTools].
	Tools *Toolbox
	// TokenLimit is what a task may use of tokens, input and output together; 0: [DefaultTokenLimit].
	TokenLimit int64
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.TokenLimit == 0 {
		c.TokenLimit = DefaultTokenLimit
	}
	return c
}

// Types lists every task type. A new one is a [task.Definition] in a file of its own and a line here.
func Types(c Config) []task.Type {
	c = c.withDefaults()
	if c.Tools == nil {
		c.Tools = builtinToolbox(c)
	}
	return []task.Type{
		ragQuery{retriever: c.Retriever, model: c.Model, tokenLimit: c.TokenLimit}.definition().Type(),
		updateTicket{tickets: c.Tickets, now: c.Now}.definition().Type(),
		agentRun{model: c.Chat, tools: c.Tools, tokenLimit: c.TokenLimit}.definition().Type(),
	}
}
