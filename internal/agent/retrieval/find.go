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
	each := scan{x: x, dictionaries: dictionaries, context: search.SearchContext{DocumentMatchPool: search.NewDocumentMatchPool(1, 0)}}
	for _, token := range text.Analyzer().Analyze([]byte(query)) {
		if seen[string(token.Term)] {
			continue
		}
		seen[string(token.Term)] = true
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		t := term{pair: token.Type == analysis.Double || token.Type == analysis.Single}
		err := each.passage(token.Term, &t, func(passage int, score float64) {
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

// scan goes through the postings of one term after another, with the same memory.
type scan struct {
	x            *Index
	dictionaries []segment.TermDictionary
	postings     []segment.PostingsList
	iterator     segment.PostingsIterator
	context      search.SearchContext
	found        index.TermFieldDoc
}

// passage weighs a term and goes through the passages that hold it.
func (s *scan) passage(name []byte, t *term, f func(passage int, score float64)) error {
	if s.postings == nil {
		s.postings = make([]segment.PostingsList, len(s.dictionaries))
	}
	var count uint64
	length := 0
	for i, d := range s.dictionaries {
		list, err := d.PostingsList(name, nil, s.postings[i])
		if err != nil {
			return err
		}
		s.postings[i] = list
		count += list.Count()
		length += s.x.shards[i].terms
	}
	passages := len(s.x.passages)
	average := float64(length) / float64(passages)
	bm25 := scorer.NewTermQueryScorer(name, field, 1, uint64(passages), count, average, search.SearcherOptions{})
	t.weight, t.known = math.Sqrt(bm25.Weight()), count > 0 // it tells the square
	for i, list := range s.postings {
		s.iterator = list.Iterator(true, true, false, s.iterator)
		for {
			p, err := s.iterator.Next()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			s.found.Freq, s.found.Norm = p.Frequency(), p.Norm()
			match := bm25.Score(&s.context, &s.found)
			f(s.x.shards[i].first+int(p.Number()), match.Score) //nolint:gosec // G115: at most shardSize
			s.context.DocumentMatchPool.Put(match)
		}
	}
	return nil
}
