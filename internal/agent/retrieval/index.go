package retrieval

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"agentworker/internal/agent"
	"agentworker/internal/agent/text"
)

// What makes a passage relevant. Of two languages the query's comes first, whatever the scores.
const (
	// minCoverage is the share of the query's weight that a passage covers. A term weighs the more the rarer it is.
	minCoverage = 0.45
	// enoughTerms of the rarest kind are enough whatever the query's length: no short passage covers a large part of a
	// long question.
	enoughTerms = 2
	// unknownPair is what a pair of CJK characters weighs that stands in no passage: most such pairs straddle two words and
	// mean nothing.
	unknownPair = 0.5
	// lead favours a document's first passage, which says what the document is about.
	lead = 1.2
	// minOfBest is the share of the best passage's score below which a passage is left out.
	minOfBest = 0.5
)

// shardSize is how many passages are indexed at once: few shards are searched faster, small ones take less memory to make.
const shardSize = 1_024

// Index ranks passages with bleve's parts: its analysis, its segments, its BM25. It lies in memory, is immutable and safe for
// concurrent use. Equal queries give equal answers.
type Index struct {
	passages []agent.Passage
	cjk      []bool // of each passage: whether it is in Chinese, Japanese or Korean
	shards   []shard
}

// New makes an index. A passage is also found by its title.
func New(passages []agent.Passage) (*Index, error) {
	x := &Index{passages: passages}
	for _, p := range passages {
		x.cjk = append(x.cjk, text.HasCJK(p.Text))
	}
	first := 0
	for some := range slices.Chunk(passages, shardSize) {
		s, err := newShard(some, first)
		if err != nil {
			return nil, fmt.Errorf("index passages: %w", err)
		}
		x.shards = append(x.shards, s)
		first += len(some)
	}
	return x, nil
}

// Retrieve implements [agent.Retriever]. The passages are all in one language, the query's where possible.
func (x *Index) Retrieve(ctx context.Context, query string, k int) ([]agent.Passage, error) {
	terms, hits, err := x.find(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("search the index: %w", err)
	}
	needed := needed(terms)
	hits = slices.DeleteFunc(hits, func(h hit) bool { return h.covered < needed })

	cjk := text.HasCJK(query)
	if slices.ContainsFunc(hits, func(h hit) bool { return x.cjk[h.passage] == cjk }) {
		hits = slices.DeleteFunc(hits, func(h hit) bool { return x.cjk[h.passage] != cjk })
	}
	for i, h := range hits {
		if x.passages[h.passage].Number == 1 {
			hits[i].score *= lead
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.passage, b.passage))
	})

	found := []agent.Passage{}
	for _, h := range hits {
		if len(found) >= k || h.score < minOfBest*hits[0].score {
			break
		}
		found = append(found, x.passages[h.passage])
	}
	return found, nil
}

// needed is the weight that a relevant passage covers.
func needed(terms []term) float64 {
	var total, rarest float64
	for _, t := range terms {
		weight := t.weight
		if t.pair && !t.known {
			weight *= unknownPair
		}
		total += weight
		rarest = max(rarest, t.weight)
	}
	return min(minCoverage*total, enoughTerms*rarest)
}
