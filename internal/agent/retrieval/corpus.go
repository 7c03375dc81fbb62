// Package retrieval finds passages of documents that fit a question.
package retrieval

import (
	"embed"
	"io/fs"
	"path"
	"strings"

	"agentworker/internal/agent"
)

//go:embed corpus/*.md
var corpus embed.FS

// Builtin is an index of the documents that come with the program. It is built anew at each call.
func Builtin() *Index {
	passages, err := Read(corpus)
	if err != nil {
		// What is embedded can be read.
		panic(err)
	}
	return New(passages)
}

// Read cuts the Markdown documents of a file system into passages: a document's first heading is its title, its
// file name without .md its name, each paragraph a passage.
func Read(files fs.FS) ([]agent.Passage, error) {
	var passages []agent.Passage
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		passages = append(passages, cut(strings.TrimSuffix(path.Base(name), ".md"), string(content))...)
		return nil
	})
	return passages, err
}

func cut(document, content string) []agent.Passage {
	var passages []agent.Passage
	var title string
	content = strings.ReplaceAll(content, "\r\n", "\n")
	for paragraph := range strings.SplitSeq(content, "\n\n") {
		paragraph = strings.TrimSpace(paragraph)
		if heading, ok := strings.CutPrefix(paragraph, "# "); ok {
			title = heading
			continue
		}
		if paragraph != "" {
			passages = append(passages, agent.Passage{Document: document, Number: len(passages) + 1, Title: title, Text: paragraph})
		}
	}
	return passages
}
