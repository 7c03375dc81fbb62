package model

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"agentworker/internal/agent"
	"agentworker/internal/agent/text"
)

// mark is how answers refer to passages: [1], [1, 2] and, from Chinese models, 【1】.
var mark = lazily(`\s?(?:\[([1-9]\d?(?:\s*[,，、]\s*[1-9]\d?)*)\]|【([1-9]\d?(?:\s*[,，、]\s*[1-9]\d?)*)】)`)

// code is where square brackets mean something else: fenced blocks and spans.
var code = lazily("(?s)```.*?(?:```|$)|`[^`\n]*`")

// lazily compiles a pattern at its first use: a worker that starts has no time for it.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// maxQuoteRunes keeps what a citation quotes to about a sentence.
const maxQuoteRunes = 300

// cite turns an answer's marks into citations, numbered in the order in which the answer comes to them. A mark without such
// a passage is left out: it supports nothing.
func cite(answer string, passages []agent.Passage) (string, []agent.Citation) {
	citations := []agent.Citation{}
	number := map[int]int{} // of the citation of a passage
	answer, statements := replaceMarks(answer, func(cited []int) string {
		var out strings.Builder
		for _, n := range cited {
			if n < 1 || n > len(passages) {
				continue
			}
			if number[n] == 0 {
				p := passages[n-1]
				citations = append(citations, agent.Citation{Document: p.Document, Passage: p.Number, Title: p.Title})
				number[n] = len(citations)
			}
			fmt.Fprintf(&out, "[%d]", number[n])
		}
		return out.String()
	})
	for n, at := range number {
		citations[at-1].Quote = quote(passages[n-1].Text, statements[n])
	}
	return answer, citations
}

// replaceMarks replaces each mark outside of code by what f gives for its numbers, with the space before it, and without it
// for "". It also gives the statement before the first mark of each number.
func replaceMarks(s string, f func(numbers []int) string) (string, map[int]string) {
	statements := map[int]string{}
	var out strings.Builder
	prose := func(from, to int) {
		for at := from; ; {
			found := mark().FindStringSubmatchIndex(s[at:to])
			if found == nil {
				out.WriteString(s[at:to])
				return
			}
			begin, end := at+found[0], at+found[1]
			out.WriteString(s[at:begin])
			var list string
			for _, group := range [][]int{found[2:4], found[4:6]} {
				if group[0] >= 0 {
					list = s[at+group[0] : at+group[1]]
				}
			}
			numbers := parse(list)
			for _, n := range numbers {
				if _, ok := statements[n]; !ok {
					statements[n] = lastSentence(s[from:begin])
				}
			}
			if replacement := f(numbers); replacement != "" {
				space, _ := utf8.DecodeRuneInString(s[begin:end])
				if space != '[' && space != '【' {
					out.WriteRune(space)
				}
				out.WriteString(replacement)
			}
			at = end
		}
	}
	at := 0
	for _, span := range code().FindAllStringIndex(s, -1) {
		prose(at, span[0])
		out.WriteString(s[span[0]:span[1]])
		at = span[1]
	}
	prose(at, len(s))
	return out.String(), statements
}

func parse(list string) []int {
	var numbers []int
	for _, field := range strings.FieldsFunc(list, func(r rune) bool { return r < '0' || r > '9' }) {
		n, _ := strconv.Atoi(field) // two digits
		numbers = append(numbers, n)
	}
	return numbers
}

func lastSentence(s string) string {
	sentences := text.Sentences(mark().ReplaceAllString(s, ""))
	if len(sentences) == 0 {
		return ""
	}
	return sentences[len(sentences)-1]
}

// quote is the passage's sentence that shares most with the statement.
func quote(passage, statement string) string {
	terms := text.Terms(statement)
	best, most := "", -1
	for _, sentence := range text.Sentences(passage) {
		has := text.Terms(sentence)
		shared := 0
		for _, t := range terms {
			if slices.Contains(has, t) {
				shared++
			}
		}
		if shared > most {
			best, most = sentence, shared
		}
	}
	if utf8.RuneCountInString(best) > maxQuoteRunes {
		best = string([]rune(best)[:maxQuoteRunes-1]) + "…"
	}
	return best
}
