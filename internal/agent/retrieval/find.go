package retrieval

import (
	"context"
	"math"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/scorer"
	index "github.com/blevesearch/bleve_index_api"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	zap "github.com/blevesearch/zapx/v17"

	"agentworker/internal/agent"
	"agentworker/internal/agent/text"
)

// field is the one that passages are found by.
const field = "text"

// shard is an inverted index of some of the passages, which is never written to again.
type shard struct {
	segment.Segment
	first int // place of its first passage among all
	terms int // in its passages together
}

// newShard takes bleve's parts without its index: that one is made to be written to, and computes tables for fuzzy search
// when a program starts, which costs as much as the rest of a function's start.
func newShard(passages []agent.Passage, first int) (shard, error) {
	s := shard{first: first}
	documents := make([]index.Document, 0, len(passages))
	for _, p := range passages {
		f := document.NewTextFieldCustom(field, nil, []byte(p.Title+"\n"+p.Text), index.IndexField, text.Analyzer())
		f.Analyze()
		s.terms += f.AnalyzedLength()
		d := document.NewDocument("")
		d.AddIDField()
		d.AddField(f)
		documents = append(documents, d)
	}
	var err error
	s.Segment, _, err = new(zap.ZapPlugin).New(documents)
	return s, err
}

// term is a term of a query.
type term struct {
	weight float64 // the larger the fewer passages hold the term, and largest when none does
	known  bool    // whether it stands in any passage
	pair   bool    // of CJK characters
}

// hit is a passage that holds a term of the query.
type hit struct {
	passage int     // its place among the passages
	score   float64 // by BM25
	covered float64 // weight of the terms that it holds
}

// find gives the query's distinct terms, and every passage that holds one of them, in any order.
func (x *Index) find(ctx context.Context, query string) (terms []term, hits []hit, err error) {
	dictionaries := make([]segment.TermDictionary, len(x.shards))
	for i, s := range x.shards {
		if dictionaries[i], err = s.Dictionary(field); err != nil {
			return nil, nil, err
		}
	}
	seen := map[string]bool{}
	at := map[int]int{} // of a passage among the hits
	for _, token := range text.Analyzer().Analyze([]byte(query)) {
		if seen[string(token.Term)] {
			continue
		}
		seen[string(token.Term)] = true
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		t := term{pair: token.Type == analysis.Double || token.Type == analysis.Single}
		err := x.each(token.Term, dictionaries, &t, func(passage int, score float64) {
			i, ok := at[passage]
			if !ok {
				i = len(hits)
				at[passage] = i
				hits = append(hits, hit{passage: passage})
			}
			hits[i].score += score
			hits[i].covered += t.weight
		})
		if err != nil {
			return nil, nil, err
		}
		terms = append(terms, t)
	}
	return terms, hits, nil
}

// each weighs a term and goes through the passages that hold it.
func (x *Index) each(name []byte, dictionaries []segment.TermDictionary, t *term, f func(passage int, score float64)) error {
	var count uint64
	length := 0
	postings := make([]segment.PostingsList, len(dictionaries))
	for i, d := range dictionaries {
		list, err := d.PostingsList(name, nil, nil)
		if err != nil {
			return err
		}
		postings[i] = list
		count += list.Count()
		length += x.shards[i].terms
	}
	average := float64(length) / float64(len(x.passages))
	bm25 := scorer.NewTermQueryScorer(name, field, 1, uint64(len(x.passages)), count, average, search.SearcherOptions{})
	t.weight, t.known = math.Sqrt(bm25.Weight()), count > 0 // it tells the square
	pool := search.SearchContext{DocumentMatchPool: search.NewDocumentMatchPool(1, 0)}
	for i, list := range postings {
		iterator := list.Iterator(true, true, false, nil)
		for {
			p, err := iterator.Next()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			match := bm25.Score(&pool, &index.TermFieldDoc{Freq: p.Frequency(), Norm: p.Norm()})
			f(x.shards[i].first+int(p.Number()), match.Score) //nolint:gosec // G115: at most shardSize
			pool.DocumentMatchPool.Put(match)
		}
	}
	return nil
}
