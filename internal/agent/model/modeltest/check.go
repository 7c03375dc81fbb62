package modeltest

import (
	"regexp"
	"slices"

	"agentworker/internal/agent/chat"
)

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// problem checks what both protocols ask of a conversation: it begins with the user or a tool's result never stands
// alone, every call is answered right after it, and tools have a name and a schema that is an object.
func problem(r chat.Request, unanswered, unasked string) string {
	if len(r.Messages) == 0 {
		return "messages: at least one message is required"
	}
	var open []string
	for _, m := range r.Messages {
		switch m.Role {
		case chat.RoleTool:
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return unasked
			}
			open = slices.Delete(open, at, at+1)
			continue
		case chat.RoleUser, chat.RoleAssistant:
		default:
			return "messages: unknown role " + string(m.Role)
		}
		if len(open) > 0 {
			return unanswered
		}
		for _, c := range m.ToolCalls {
			if !toolName.MatchString(c.Name) {
				return "tool name " + c.Name + " does not match ^[a-zA-Z0-9_-]{1,64}$"
			}
			if c.ID == "" || slices.Contains(open, c.ID) {
				return "tool call id is missing or used twice"
			}
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return unanswered
	}
	for _, t := range r.Tools {
		if !toolName.MatchString(t.Name) {
			return "tool name " + t.Name + " does not match ^[a-zA-Z0-9_-]{1,64}$"
		}
		if t.Schema.Kind() != '{' {
			return "the schema of tool " + t.Name + " is not an object"
		}
	}
	return ""
}
