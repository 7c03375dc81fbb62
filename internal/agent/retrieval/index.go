package retrieval

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	"agentworker/internal/agent"
	"agentworker/internal/agent/text"
)

// The usual parameters of BM25: how soon repetitions of a term stop to count, and how much long passages are
// held back.
// Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond".
const (
	saturation = 1.2
	lengthNorm = 0.75
)

// What a passage must have to be relevant at all. Terms are weighed by how rare they are.
const (
	minCoverage = 0.45 // share of the query's weight that it covers
	// enoughTerms of the rarest kind are enough whatever the query's length: no short passage covers
	// a large part of a long question.
	enoughTerms = 2
	// minOfBest is the share of the best passage's score below which a passage is left out.
	minOfBest = 0.5
	// otherLanguage is the part of the score that a passage keeps which is not in the query's language, so
	// that it comes up when there is no good one that is.
	otherLanguage = 0.4
	// lead favours a document's first passage, which says what the document is about.
	lead = 1.3
	// unknownPair is what a pair of CJK characters weighs that stands in no passage: most such pairs straddle
	// two words and mean nothing.
	unknownPair = 0.5
)

// Index ranks passages by BM25. It lies in memory, is immutable and safe for concurrent use. Equal queries
// give equal answers.
type Index struct {
	passages []indexed
	postings map[string][]posting // by term, in the order of the passages
	length   float64              // mean number of terms in a passage
}

type indexed struct {
	agent.Passage
	length int // in terms
	cjk    bool
}

// posting says that a term stands in a passage, and how often.
type posting struct{ passage, count int32 }

// New makes an index. A passage is also found by its title.
func New(passages []agent.Passage) *Index {
	x := &Index{postings: map[string][]posting{}}
	total := 0
	for at, p := range passages {
		terms := text.Terms(p.Title + "\n" + p.Text)
		for _, t := range terms {
			list := x.postings[t]
			if last := len(list) - 1; last >= 0 && list[last].passage == int32(at) {
				list[last].count++
				continue
			}
			if list == nil {
				t = strings.Clone(t) // or it would hold the whole folded text
			}
			x.postings[t] = append(list, posting{int32(at), 1})
		}
		x.passages = append(x.passages, indexed{Passage: p, length: len(terms), cjk: text.HasCJK(p.Text)})
		total += len(terms)
	}
	x.length = max(1, float64(total)/float64(max(1, len(passages))))
	return x
}

// Retrieve implements [agent.Retriever]. The passages are all in one language, the query's where possible.
func (x *Index) Retrieve(ctx context.Context, query string, k int) ([]agent.Passage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type hit struct {
		at    int
		score float64
	}
	terms, needed := x.query(query)
	cjk := text.HasCJK(query)
	var hits []hit
	scores, covered := x.score(terms)
	for i, p := range x.passages {
		score := scores[i]
		if covered[i] == 0 || covered[i] < needed {
			continue
		}
		if p.cjk != cjk {
			score *= otherLanguage
		}
		if p.Number == 1 {
			score *= lead
		}
		hits = append(hits, hit{i, score})
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })

	found := []agent.Passage{}
	for _, h := range hits {
		best := hits[0]
		if len(found) >= k || h.score < minOfBest*best.score {
			break
		}
		if x.passages[h.at].cjk == x.passages[best.at].cjk {
			found = append(found, x.passages[h.at].Passage)
		}
	}
	return found, nil
}

// query gives the query's distinct terms that stand in any passage, and the weight that a passage must cover.
// The order is fixed: sums of floating-point numbers depend on it.
func (x *Index) query(s string) (terms []string, needed float64) {
	set := map[string]bool{}
	for _, t := range text.Terms(s) {
		set[t] = true
	}
	var total float64
	for _, t := range slices.Sorted(maps.Keys(set)) {
		switch known := len(x.postings[t]) > 0; {
		case known:
			terms = append(terms, t)
			total += x.weight(t)
		case text.HasCJK(t):
			total += unknownPair * x.weight(t)
		default:
			total += x.weight(t)
		}
	}
	return terms, min(minCoverage*total, enoughTerms*x.weight(""))
}

// score gives each passage's score, and the weight of the terms that it holds.
func (x *Index) score(terms []string) (scores, covered []float64) {
	scores, covered = make([]float64, len(x.passages)), make([]float64, len(x.passages))
	for _, t := range terms {
		w := x.weight(t)
		for _, in := range x.postings[t] {
			norm := saturation * (1 - lengthNorm + lengthNorm*float64(x.passages[in.passage].length)/x.length)
			n := float64(in.count)
			covered[in.passage] += w
			scores[in.passage] += w * n * (saturation + 1) / (n + norm)
		}
	}
	return scores, covered
}

// weight is the larger the fewer passages hold the term, and largest when none does.
func (x *Index) weight(term string) float64 {
	n, in := float64(len(x.passages)), float64(len(x.postings[term]))
	return math.Log(1 + (n-in+0.5)/(in+0.5))
}
