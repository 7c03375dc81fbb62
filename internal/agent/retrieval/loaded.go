package retrieval

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"agentworker/internal/agent"
	"agentworker/internal/agent/upstream"
)

// Loaded is an [Index] of documents that are read once: at the first query, or before by [Loaded.Begin]. A load that fails is
// an error of the queries that waited for it; the next one tries again. It is safe for concurrent use.
type Loaded struct {
	load  func(ctx context.Context) ([]agent.Passage, error)
	turn  chan struct{} // holds one token: whoever has it may load
	index *Index        // nil: not loaded
}

// Load makes a [Loaded] of whatever load gives.
func Load(load func(ctx context.Context) ([]agent.Passage, error)) *Loaded {
	l := &Loaded{load: load, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Folder is an index of a folder's Markdown and text files. They are read now: a folder that cannot be read stops a worker
// before it takes a message. What takes longer, making the index, is left to the first query or to [Loaded.Begin].
func Folder(ctx context.Context, path string) (*Loaded, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%q is not a folder that can be read", path)
	}
	passages, err := Read(ctx, os.DirFS(path))
	if err != nil {
		return nil, fmt.Errorf("read the documents in %q: %w", path, err)
	}
	if len(passages) == 0 {
		return nil, fmt.Errorf("%q holds no Markdown or text file with something in it", path)
	}
	return Load(func(context.Context) ([]agent.Passage, error) { return passages, nil }), nil
}

// Begin loads in the background, so that the first query need not wait for all of it. A failure is logged, and is otherwise
// left to the first query. What Begin started ends with ctx; done is closed then.
func (l *Loaded) Begin(ctx context.Context, log *slog.Logger) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := l.loaded(ctx); err != nil {
			log.WarnContext(ctx, "documents not loaded yet", "error", err)
		}
	}()
	return ended
}

// Retrieve implements [agent.Retriever].
func (l *Loaded) Retrieve(ctx context.Context, query string, k int) ([]agent.Passage, error) {
	index, err := l.loaded(ctx)
	if err != nil {
		return nil, err
	}
	return index.Retrieve(ctx, query, k)
}

func (l *Loaded) loaded(ctx context.Context) (*Index, error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, service.Transport(ctx, ctx.Err())
	}
	if l.index != nil {
		return l.index, nil
	}
	passages, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	l.index, err = New(passages)
	return l.index, err
}

// tooMuch is the error of a collection beyond the bounds.
func tooMuch(err error) error { return service.Fail(upstream.Invalid, err.Error()) }
