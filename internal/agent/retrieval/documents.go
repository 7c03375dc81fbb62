package retrieval

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"agentworker/internal/agent"
	"agentworker/internal/agent/text"
	"agentworker/internal/agent/upstream"
)

// Bounds of a collection that is indexed in memory: beyond them a Lambda of 256 MB would die while it starts, and a knowledge
// base is the better place.
const (
	MaxDocuments     = 5_000
	MaxDocumentBytes = 4 << 20
	MaxTotalBytes    = 16 << 20
)

// service is whom the calls of this package go to.
var service = upstream.Service{Name: "the document store", Prefix: "RETRIEVAL"}

// isText reports whether a file is one that can be indexed.
func isText(name string) bool {
	return slices.Contains([]string{".md", ".markdown", ".txt"}, strings.ToLower(path.Ext(name)))
}

// collection gathers documents within the bounds.
type collection struct {
	passages  []agent.Passage
	documents int
	bytes     int64
}

// room says whether one more document fits.
func (c *collection) room(name string, size int64) error {
	switch {
	case size > MaxDocumentBytes:
		return fmt.Errorf("document %q is larger than %d MB", name, MaxDocumentBytes>>20)
	case c.documents >= MaxDocuments:
		return fmt.Errorf("there are more than %d documents", MaxDocuments)
	case c.bytes+size > MaxTotalBytes:
		return fmt.Errorf("the documents are larger than %d MB together", MaxTotalBytes>>20)
	}
	c.documents++
	c.bytes += size
	return nil
}

func (c *collection) add(name string, content []byte) {
	c.passages = append(c.passages, cut(strings.TrimSuffix(name, ".md"), decode(content))...)
}

// decode reads UTF-16, which some editors on Windows call Unicode, by its byte order mark, and everything else as UTF-8.
func decode(content []byte) string {
	if bytes.HasPrefix(content, []byte("\xFF\xFE")) || bytes.HasPrefix(content, []byte("\xFE\xFF")) {
		if decoded, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(content); err == nil {
			return string(decoded)
		}
	}
	return string(content)
}

// Read cuts the Markdown and text files of a file system into passages, in the order of their names. A document is named
// by its path, without .md. Files and folders whose names begin with a dot are left out. It fails on more than
// [MaxDocuments], [MaxDocumentBytes] or [MaxTotalBytes].
func Read(ctx context.Context, files fs.FS) ([]agent.Passage, error) {
	var c collection
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case strings.HasPrefix(entry.Name(), ".") && name != ".":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !isText(name):
			return nil
		}
		info, err := fs.Stat(files, name) // the entry itself may be a link
		if err != nil {
			return err
		}
		if err := c.room(name, info.Size()); err != nil {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		c.add(name, content)
		return nil
	})
	return c.passages, err
}

// maxPassageRunes bounds a passage: a longer paragraph is cut between sentences, and three passages stay small enough to be
// read, cited and kept.
const maxPassageRunes = 1_200

// cut makes passages of a document: its first heading is its title, every paragraph, list or block of code a passage. What
// stands below a further heading carries that in its title.
func cut(document, content string) []agent.Passage {
	var passages []agent.Passage
	var title, section string
	add := func(s string) {
		heading := title
		if section != "" {
			heading = strings.TrimPrefix(title+" – "+section, " – ")
		}
		for _, piece := range pieces(s) {
			passages = append(passages, agent.Passage{Document: document, Number: len(passages) + 1, Title: heading, Text: piece})
		}
	}
	for _, block := range blocks(content) {
		heading, rest, ok := cutHeading(block)
		switch {
		case ok && title == "" && len(passages) == 0:
			title = heading
		case ok:
			section = heading
		}
		if rest = strings.TrimSpace(rest); rest != "" {
			add(rest)
		}
	}
	return passages
}

// blocks are what blank lines set apart, except within fences.
func blocks(content string) []string {
	content = strings.TrimPrefix(strings.ToValidUTF8(content, "\uFFFD"), "\uFEFF")
	content = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(content)
	var out []string
	var block []string
	fence := ""
	end := func() {
		if s := strings.TrimSpace(strings.Join(block, "\n")); s != "" {
			out = append(out, s)
		}
		block = nil
	}
	for line := range strings.SplitSeq(content, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:3]
		case trimmed == "":
			end()
			continue
		case isHeading(line):
			end()
		}
		block = append(block, line)
	}
	end()
	return out
}

func isHeading(line string) bool {
	marks := len(line) - len(strings.TrimLeft(line, "#"))
	return marks >= 1 && marks <= 6 && strings.HasPrefix(line[marks:], " ")
}

// cutHeading takes the heading off a block that begins with one.
func cutHeading(block string) (heading, rest string, ok bool) {
	first, rest, _ := strings.Cut(block, "\n")
	if !isHeading(first) {
		return "", block, false
	}
	return strings.TrimSpace(strings.Trim(first, "# ")), rest, true
}

// pieces cuts a text that is too long for one passage.
func pieces(s string) []string {
	if utf8.RuneCountInString(s) <= maxPassageRunes {
		return []string{s}
	}
	var out []string
	var piece strings.Builder
	size := 0
	end := func() {
		if t := strings.TrimSpace(piece.String()); t != "" {
			out = append(out, t)
		}
		piece.Reset()
		size = 0
	}
	for _, sentence := range text.Sentences(s) {
		runes := []rune(sentence)
		if size > 0 && size+1+len(runes) > maxPassageRunes {
			end()
		}
		for len(runes) > maxPassageRunes {
			end()
			out = append(out, string(runes[:maxPassageRunes]))
			runes = runes[maxPassageRunes:]
		}
		if last, _ := utf8.DecodeLastRuneInString(piece.String()); size > 0 && !strings.ContainsRune("。！？；…", last) {
			piece.WriteByte(' ')
		}
		piece.WriteString(string(runes))
		size += 1 + len(runes)
	}
	end()
	return out
}
