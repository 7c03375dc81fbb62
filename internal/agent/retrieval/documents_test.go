package retrieval_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/agent/retrieval"
)

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := retrieval.Read(t.Context(), fstest.MapFS{
		"a.md":         {Data: []byte("# A title\r\n\r\nFirst paragraph\r\nof two lines.\r\n\r\n\r\n\r\nSecond.\r\n")},
		"sub/b.zh.md":  {Data: []byte("没有标题。")},
		"sub/c.txt":    {Data: []byte("Plain text.")},
		"sub/D.MD":     {Data: []byte("\uFEFF# Loud\nright below")},
		"sub/e.html":   {Data: []byte("<p>neither</p>")},
		"sub/empty.md": {},
		".git/x.md":    {Data: []byte("hidden")},
		"sub/.x.md":    {Data: []byte("hidden")},
		"bad.txt":      {Data: []byte("not \xFF UTF-8")},
		"wide.txt":     {Data: []byte("\xFF\xFEW\x00i\x00d\x00e\x00\r\x00\n\x00\x87\x65")},
		"wider.txt":    {Data: []byte("\xFE\xFF\x65\x87\xD8\x3D\xDE\x42")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []agent.Passage{
		{Document: "a", Number: 1, Title: "A title", Text: "First paragraph\nof two lines."},
		{Document: "a", Number: 2, Title: "A title", Text: "Second."},
		{Document: "bad.txt", Number: 1, Text: "not \uFFFD UTF-8"},
		{Document: "sub/D.MD", Number: 1, Title: "Loud", Text: "right below"},
		{Document: "sub/b.zh", Number: 1, Text: "没有标题。"},
		{Document: "sub/c.txt", Number: 1, Text: "Plain text."},
		{Document: "wide.txt", Number: 1, Text: "Wide\n文"},
		{Document: "wider.txt", Number: 1, Text: "文🙂"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("passages (-want +got):\n%s", diff)
	}
}

func TestHeadingsAndCode(t *testing.T) {
	t.Parallel()
	got, err := retrieval.Read(t.Context(), fstest.MapFS{"a.md": {Data: []byte(strings.Join([]string{
		"# Guide", "Intro.", "", "## Set up ##", "", "Run this:", "```sh", "make run", "", "# no heading", "```", "### Deep", "- one", "- two", "", "#hashtag is text",
	}, "\n"))}})
	if err != nil {
		t.Fatal(err)
	}
	want := []agent.Passage{
		{Document: "a", Number: 1, Title: "Guide", Text: "Intro."},
		{Document: "a", Number: 2, Title: "Guide – Set up", Text: "Run this:\n```sh\nmake run\n\n# no heading\n```"},
		{Document: "a", Number: 3, Title: "Guide – Deep", Text: "- one\n- two"},
		{Document: "a", Number: 4, Title: "Guide – Deep", Text: "#hashtag is text"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("passages (-want +got):\n%s", diff)
	}
}

func TestLongParagraphIsCutBetweenSentences(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ sentence, between string }{
		"English": {"A sentence of some words stands here.", " "},
		"Chinese": {"这是一个完整的句子，讲的是队列。", ""},
		"endless": {strings.Repeat("界", 5000), ""},
	} {
		whole := strings.TrimSpace(strings.Repeat(tt.sentence+tt.between, 1+6000/len(tt.sentence)))
		got, err := retrieval.Read(t.Context(), fstest.MapFS{"a.txt": {Data: []byte(whole)}})
		if err != nil || len(got) < 2 {
			t.Fatalf("%s: got %d passages, %v, want several", name, len(got), err)
		}
		var all []string
		for i, p := range got {
			if n := utf8.RuneCountInString(p.Text); n > 1200 || p.Number != i+1 {
				t.Errorf("%s: passage %d has number %d and %d characters, want at most 1200", name, i+1, p.Number, n)
			}
			all = append(all, p.Text)
		}
		if back := strings.Join(all, tt.between); back != whole {
			t.Errorf("%s: the passages together are not the text: %d bytes of %d", name, len(back), len(whole))
		}
	}
}

func TestCollectionIsBounded(t *testing.T) {
	t.Parallel()
	many := fstest.MapFS{}
	for i := range retrieval.MaxDocuments + 1 {
		many[fmt.Sprintf("%05d.md", i)] = &fstest.MapFile{Data: []byte("x")}
	}
	heavy := fstest.MapFS{}
	blank := bytes.Repeat([]byte(" "), retrieval.MaxDocumentBytes-1)
	for i := range retrieval.MaxTotalBytes/retrieval.MaxDocumentBytes + 1 {
		heavy[fmt.Sprintf("%d.txt", i)] = &fstest.MapFile{Data: blank}
	}
	for want, files := range map[string]fs.FS{
		"more than 5000 documents":            many,
		"the documents are larger than 16 MB": heavy,
		`document "a.md" is larger than 4 MB`: fstest.MapFS{"a.md": {Data: make([]byte, retrieval.MaxDocumentBytes+1)}},
	} {
		if _, err := retrieval.Read(t.Context(), files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A folder may hold a log of many gigabytes that is called .txt: it is refused before it is read.
func TestReadLooksAtSizesFirst(t *testing.T) {
	t.Parallel()
	_, err := retrieval.Read(t.Context(), huge{fstest.MapFS{"log.txt": {Data: []byte("x")}}})
	if err == nil || !strings.Contains(err.Error(), `document "log.txt" is larger than 4 MB`) {
		t.Errorf("got %v, want that the document is too large", err)
	}
}

// huge is a file system whose files say that they have many gigabytes, and must not be read.
type huge struct{ fstest.MapFS }

func (h huge) ReadFile(name string) ([]byte, error) { return nil, fmt.Errorf("%s was read", name) }

func (h huge) Stat(name string) (fs.FileInfo, error) {
	info, err := h.MapFS.Stat(name)
	if err != nil || info.IsDir() {
		return info, err
	}
	return hugeFile{info}, nil
}

type hugeFile struct{ fs.FileInfo }

func (hugeFile) Size() int64 { return 20 << 30 }

func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("handbook/holidays.md", "# Holidays\n\nEvery employee has twenty-five days of holiday a year.")
	write("报销.md", "# 报销\n\n出差的费用在三十天内报销。")
	index, err := retrieval.Folder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{"How many days of holiday do I have?": "handbook/holidays 1", "出差费用怎么报销？": "报销 1"} {
		if got := retrieve(t, index, query, 3); len(got) == 0 || name(got[0]) != want {
			t.Errorf("Retrieve(%q): got %q, want %q", query, names(got), want)
		}
	}
	if got := retrieve(t, index, "What is the capital of France?", 3); len(got) != 0 {
		t.Errorf("an unrelated question: got %q, want nothing", names(got))
	}
	for _, path := range []string{filepath.Join(dir, "missing"), filepath.Join(dir, "报销.md")} {
		if _, err := retrieval.Folder(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is not a folder") {
			t.Errorf("%s: got %v, want that it is not a folder", path, err)
		}
	}
	if _, err := retrieval.Folder(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no Markdown or text file") {
		t.Errorf("an empty folder: got %v, want that nothing is in it", err)
	}
}

// BenchmarkIndex is what a cold start and a question cost with a collection of 2,000 documents in two languages.
func BenchmarkIndex(b *testing.B) {
	files := fstest.MapFS{}
	size := 0
	for i := range 1000 {
		english := fmt.Sprintf("# Note %d\n\n%s", i, strings.Repeat(fmt.Sprintf("Message %d of queue %d is hidden for the visibility timeout of its consumer. ", i, i%37), 20))
		chinese := fmt.Sprintf("# 笔记 %d\n\n%s", i, strings.Repeat(fmt.Sprintf("队列 %d 中的消息 %d 在可见性超时内对其他消费者隐藏。", i%37, i), 20))
		files[fmt.Sprintf("%d.md", i)], files[fmt.Sprintf("%d.zh.md", i)] = &fstest.MapFile{Data: []byte(english)}, &fstest.MapFile{Data: []byte(chinese)}
		size += len(english) + len(chinese)
	}
	var index *retrieval.Index
	b.Run("build", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			passages, err := retrieval.Read(b.Context(), files)
			if err != nil {
				b.Fatal(err)
			}
			index = newIndex(b, passages)
		}
	})
	for name, query := range map[string]string{"English": "How long is message 77 hidden?", "Chinese": "消息 77 隐藏多久？"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := index.Retrieve(b.Context(), query, 3); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("builtin", func(b *testing.B) {
		for b.Loop() {
			retrieve(b, retrieval.Builtin(), "LangGraph", 3)
		}
	})
}
