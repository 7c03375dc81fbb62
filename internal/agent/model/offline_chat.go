package model

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/text"
)

// What [Offline] says at the end of a conversation about how it came to its answer, in the user's language.
const (
	NoLanguageModel        = "(Found by simple rules: no language model is set up.)"
	NoLanguageModelChinese = "（由简单规则得出：没有配置语言模型。）"
)

// Complete implements [chat.Model] by rules, without network: it moves or reads the tickets that the user names, searches the
// documents for the rest, and answers with what the tools gave, word for word. It says that it is no language model.
func (Offline) Complete(ctx context.Context, r chat.Request) (chat.Response, error) {
	if err := ctx.Err(); err != nil {
		return chat.Response{}, err
	}
	asked := 0
	for i, m := range r.Messages {
		if m.Role == chat.RoleUser {
			asked = i
		}
	}
	if len(r.Messages) == 0 {
		return chat.Response{Text: NoLanguageModel, Model: Name, Stop: chat.StopEnd}, nil
	}
	plan := planFor(r.Messages[asked].Text, earlier(r.Messages[:asked]), r.Tools)
	done := results(r.Messages[asked+1:])
	if len(done) < len(plan) {
		next := plan[len(done)]
		next.ID = fmt.Sprintf("offline-%d", len(r.Messages))
		return chat.Response{ToolCalls: []chat.ToolCall{next}, Model: Name, Stop: chat.StopTools}, nil
	}
	return chat.Response{Text: report(r.Messages[asked].Text, plan, done), Model: Name, Stop: chat.StopEnd}, nil
}

// earlier are the questions before, for those that point back.
func earlier(messages []chat.Message) []agent.Turn {
	var turns []agent.Turn
	for _, m := range messages {
		if m.Role == chat.RoleUser {
			turns = append(turns, agent.Turn{Question: m.Text})
		}
	}
	return turns
}

func results(messages []chat.Message) []chat.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m chat.Message) bool { return m.Role != chat.RoleTool })
}

var ticketID = lazily(`\b[A-Z]{2,10}-[0-9]+\b`)

// statuses are the words by which people name a ticket's status, and which one they mean. The first that is found counts:
// "reopen" stands before "open".
var statuses = []struct{ word, status string }{
	{"in_progress", "in_progress"},
	{"in progress", "in_progress"},
	{"处理中", "in_progress"},
	{"进行中", "in_progress"},
	{"start work", "in_progress"},
	{"reopen", "open"},
	{"重新打开", "open"},
	{"resolve", "resolved"},
	{"已解决", "resolved"},
	{"解决", "resolved"},
	{"close", "closed"},
	{"关闭", "closed"},
	{"open", "open"},
	{"打开", "open"},
}

// asks tells a question about a ticket from an order.
var asks = lazily(`(?i)^\s*(is|are|was|what|what's|which|when|who|why|how|does|did|has|show|get|read|look)\b|[?？吗]\s*$|什么|多少|哪个`)

// planFor lists the calls that a request takes, in order: sentence by sentence for tickets, then a search for the rest.
func planFor(question string, before []agent.Turn, tools []chat.Tool) []chat.ToolCall {
	offered := func(name string) bool {
		return slices.ContainsFunc(tools, func(t chat.Tool) bool { return t.Name == name })
	}
	var plan []chat.ToolCall
	var rest []string
	for _, sentence := range text.Sentences(question) {
		ids := ticketID().FindAllString(sentence, -1)
		status := statusIn(sentence)
		name := agent.ToolUpdateTicket
		if status == "" || asks().MatchString(sentence) {
			name = agent.ToolGetTicket
		}
		if len(ids) == 0 || !offered(name) {
			rest = append(rest, sentence)
			continue
		}
		for _, id := range ids {
			input := map[string]string{"ticket_id": id}
			if name == agent.ToolUpdateTicket {
				input["status"] = status
			}
			plan = append(plan, call(name, input))
		}
	}
	if query := strings.Join(rest, " "); query != "" && offered(agent.ToolSearchDocuments) {
		plan = append(plan, call(agent.ToolSearchDocuments, map[string]string{"query": agent.SearchQuery(query, before)}))
	}
	return plan
}

func statusIn(sentence string) string {
	lower := strings.ToLower(sentence)
	for _, s := range statuses {
		if strings.Contains(lower, s.word) {
			return s.status
		}
	}
	return ""
}

func call(name string, input map[string]string) chat.ToolCall {
	raw, err := json.Marshal(input, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		raw = jsontext.Value("{}") // strings can always be written
	}
	return chat.ToolCall{Name: name, Input: raw}
}

// report says what the calls gave.
func report(question string, plan []chat.ToolCall, done []chat.Message) string {
	chinese := text.HasCJK(question)
	var parts []string
	for i, c := range plan {
		switch {
		case done[i].ToolError:
			parts = append(parts, done[i].Text)
		case c.Name == agent.ToolSearchDocuments:
			parts = append(parts, extract(question, done[i].Text))
		default:
			parts = append(parts, ticketSentence(c, done[i].Text, chinese))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, noAnswer(question))
	}
	if chinese {
		parts = append(parts, NoLanguageModelChinese)
	} else {
		parts = append(parts, NoLanguageModel)
	}
	return strings.Join(parts, "\n\n")
}

// extract repeats the passages' sentences that fit the question, each with the text that cites its passage.
func extract(question, result string) string {
	var found struct {
		Passages []struct {
			Cite string `json:"cite"`
			agent.Passage
		} `json:"passages"`
	}
	if json.Unmarshal([]byte(result), &found) != nil {
		return noAnswer(question)
	}
	var passages []agent.Passage
	for _, p := range found.Passages {
		passages = append(passages, p.Passage)
	}
	var out []string
	for _, s := range choose(sentences(passages), question) {
		out = append(out, s.text+" "+found.Passages[s.passage].Cite)
	}
	if len(out) == 0 {
		return noAnswer(question)
	}
	return strings.Join(out, " ")
}

func ticketSentence(c chat.ToolCall, result string, chinese bool) string {
	var in struct {
		TicketID string `json:"ticket_id"`
	}
	var ticket struct {
		Status  string `json:"status"`
		Version int64  `json:"version"`
	}
	if json.Unmarshal(c.Input, &in) != nil || json.Unmarshal([]byte(result), &ticket) != nil || ticket.Status == "" {
		return result
	}
	if chinese {
		return fmt.Sprintf("工单 %s 的状态是 %s（版本 %d）。", in.TicketID, ticket.Status, ticket.Version)
	}
	return fmt.Sprintf("Ticket %s is %s (version %d).", in.TicketID, ticket.Status, ticket.Version)
}
