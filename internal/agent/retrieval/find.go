package retrieval

import (
	"context"
	"math"
	"strconv"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/searcher"
	index "github.com/blevesearch/bleve_index_api"

	"agentworker/internal/agent/text"
)

// field is the one that passages are found by.
const field = "text"

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
func find(ctx context.Context, reader index.IndexReader, query string) (terms []term, hits []hit, err error) {
	ctx = context.WithValue(ctx, search.GetScoringModelCallbackKey, search.GetScoringModelCallbackFn(bm25))
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
		err := each(ctx, reader, string(token.Term), &t, func(passage int, score float64) {
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
func each(ctx context.Context, reader index.IndexReader, name string, t *term, f func(passage int, score float64)) error {
	s, err := searcher.NewTermSearcher(ctx, reader, name, field, 1, search.SearcherOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	t.weight, t.known = math.Sqrt(s.Weight()), s.Count() > 0 // bleve tells the square
	pool := search.SearchContext{DocumentMatchPool: search.NewDocumentMatchPool(1, 0)}
	for {
		m, err := s.Next(&pool)
		if err != nil || m == nil {
			return err
		}
		id, err := reader.ExternalID(m.IndexInternalID)
		if err != nil {
			return err
		}
		passage, err := strconv.Atoi(id)
		if err != nil {
			return err
		}
		f(passage, m.Score)
		pool.DocumentMatchPool.Put(m)
	}
}

func bm25() string { return index.BM25Scoring }
