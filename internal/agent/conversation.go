package agent

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"agentworker/internal/agent/text"
	"agentworker/internal/task"
)

// A conversation's context is bounded, so that a question costs the same at turn 1,000 as at turn 10.
const (
	MaxTurns             = 10
	MaxConversationRunes = 8_000 // questions and answers together
)

// Conversation is the newest part of the thread's questions and answers, oldest first, within [MaxTurns] and
// [MaxConversationRunes]. Results of other task types are left out. A newest turn that is too long by
// itself is cut; an older one that does not fit ends the conversation.
func Conversation(results []task.Turn) []Turn {
	var turns []Turn
	left := MaxConversationRunes
	for _, result := range slices.Backward(results) {
		if result.Task != RAGQuery && result.Task != AgentRun {
			continue
		}
		var turn Turn
		// A result of an older version that no longer fits is no context.
		if json.Unmarshal(result.Data, &turn) != nil || turn.Question == "" {
			continue
		}
		size := utf8.RuneCountInString(turn.Question) + utf8.RuneCountInString(turn.Answer)
		if size > left {
			if len(turns) > 0 {
				break
			}
			turn.Question = firstRunes(turn.Question, left/2)
			turn.Answer = firstRunes(turn.Answer, left-utf8.RuneCountInString(turn.Question))
			size = left
		}
		left -= size
		turns = append(turns, turn)
		if len(turns) == MaxTurns {
			break
		}
	}
	slices.Reverse(turns)
	return turns
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// maxFollowUpTerms is how much a follow-up question says at most: a few words, or twice as many Chinese
// characters.
const maxFollowUpTerms = 4

// SearchQuery is what to search for: the question itself or, for a short one that points back ("and what about
// FIFO?"), the questions before it as well, back to the last that stands by itself.
func SearchQuery(question string, turns []Turn) string {
	query := question
	for _, turn := range slices.Backward(turns) {
		if !pointsBack(question) {
			break
		}
		question = turn.Question
		query = question + "\n" + query
	}
	return query
}

func pointsBack(question string) bool {
	terms := text.Terms(question)
	if len(terms) == 0 {
		return true
	}
	if len(terms) > maxFollowUpTerms {
		return false
	}
	words := text.Words(question)
	begins := strings.Join(words, " ") + " "
	return slices.ContainsFunc(openers, func(o string) bool { return strings.HasPrefix(begins, o+" ") }) ||
		slices.ContainsFunc(words, func(w string) bool { return slices.Contains(pronouns, w) }) ||
		slices.ContainsFunc(markers, func(m string) bool { return strings.Contains(question, m) })
}

// What tells that a question points back: how it begins, what it refers to, and the same in Chinese, where
// words are not set apart.
var (
	openers  = []string{"and", "but", "or", "so", "then", "also", "what about", "how about"}
	pronouns = []string{"it", "its", "they", "them", "their", "this", "that", "these", "those"}
	markers  = []string{"它", "这", "那", "呢", "还有"}
)
