// Package model answers questions from passages.
package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"agentworker/internal/agent"
	"agentworker/internal/agent/text"
)

// Name is what results of [Offline] carry as their model.
const Name = "offline"

// What [Offline] says when the passages do not answer, in the question's language.
const (
	NoAnswer        = "The documents do not answer this question."
	NoAnswerChinese = "文档没有回答这个问题。"
)

const (
	maxSentences = 3
	// minOfBest is the share of the best sentence's score below which a sentence is left out.
	minOfBest = 0.6
	// titleShare is what a term counts that a sentence's document has in its title only.
	titleShare = 0.4
)

// Offline answers by extraction: it repeats, word for word, the sentences that share most with the question,
// and cites the passage of each. It is no language model: it needs no network and invents
// nothing. The zero value is ready and safe for concurrent use; equal requests give equal answers.
type Offline struct{}

// sentence is one sentence of a passage.
type sentence struct {
	text    string
	passage int
	terms   map[string]float64
	score   float64
}

// Generate implements [agent.Model].
func (Offline) Generate(ctx context.Context, r agent.Request) (agent.Answer, error) {
	if err := ctx.Err(); err != nil {
		return agent.Answer{}, err
	}
	chosen := choose(sentences(r.Passages), agent.SearchQuery(r.Question, r.Turns))
	answer := agent.Answer{Model: Name, Citations: []agent.Citation{}}
	if len(chosen) == 0 {
		answer.Text = NoAnswer
		if text.HasCJK(r.Question) {
			answer.Text = NoAnswerChinese
		}
		return answer, nil
	}

	var b strings.Builder
	number := map[int]int{} // of the citation of a passage
	for _, s := range chosen {
		p := r.Passages[s.passage]
		if number[s.passage] == 0 {
			answer.Citations = append(answer.Citations, agent.Citation{Document: p.Document, Passage: p.Number, Title: p.Title})
			number[s.passage] = len(answer.Citations)
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s [%d]", s.text, number[s.passage])
	}
	answer.Text = b.String()
	return answer, nil
}

func sentences(passages []agent.Passage) []sentence {
	var out []sentence
	for i, p := range passages {
		title := text.Terms(p.Title)
		for _, s := range text.Sentences(p.Text) {
			if slices.ContainsFunc(out, func(o sentence) bool { return o.text == s }) {
				continue
			}
			terms := map[string]float64{}
			// A sentence is about the subject of its document even where it does not name it.
			for _, t := range title {
				terms[t] = titleShare
			}
			for _, t := range text.Terms(s) {
				terms[t] = 1
			}
			out = append(out, sentence{text: s, passage: i, terms: terms})
		}
	}
	return out
}

// choose gives the best sentences in the order in which they stand in the passages, none when the query
// shares no term with any.
func choose(all []sentence, query string) []sentence {
	distinct := map[string]bool{}
	for _, t := range text.Terms(query) {
		distinct[t] = true
	}
	for _, t := range slices.Sorted(maps.Keys(distinct)) {
		in := 0
		for _, s := range all {
			if s.terms[t] > 0 {
				in++
			}
		}
		// A term that stands everywhere tells less, but still something.
		weight := math.Log(2 + float64(len(all)-in)/float64(in+1))
		for i := range all {
			all[i].score += weight * all[i].terms[t]
		}
	}
	ranked := slices.DeleteFunc(slices.Clone(all), func(s sentence) bool { return s.score == 0 })
	slices.SortStableFunc(ranked, func(a, b sentence) int { return cmp.Compare(b.score, a.score) })
	ranked = ranked[:min(len(ranked), maxSentences)]
	ranked = slices.DeleteFunc(ranked, func(s sentence) bool { return s.score < minOfBest*ranked[0].score })
	slices.SortStableFunc(ranked, func(a, b sentence) int { return cmp.Compare(a.passage, b.passage) })
	return ranked
}
