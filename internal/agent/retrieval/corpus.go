// Package retrieval finds passages of documents that fit a question.
package retrieval

import (
	"context"
	"embed"
	"io/fs"

	"agentworker/internal/agent"
)

//go:embed corpus/*.md
var corpus embed.FS

// Builtin is an index of the documents that come with the program.
func Builtin() *Loaded { return Load(builtin) }

func builtin(ctx context.Context) ([]agent.Passage, error) {
	files, err := fs.Sub(corpus, "corpus")
	if err != nil {
		return nil, err
	}
	return Read(ctx, files)
}
