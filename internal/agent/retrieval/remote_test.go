package retrieval_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentworker/internal/agent"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func awsAt(url string) aws.Config {
	return aws.Config{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("AKIA", "secret", ""),
		BaseEndpoint: &url, RetryMaxAttempts: 1,
	}
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// bucket speaks the two calls of S3 that reading a prefix takes. It lists two keys a page.
type bucket struct {
	mu      sync.Mutex
	objects map[string]string
	gone    map[string]string // keys that are listed and cannot be read, with S3's code for it
	failed  int               // the status of every answer; 0: none
	reads   int
}

func (b *bucket) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, listing := strings.CutPrefix(r.URL.Path, "/docs/")
	listing = !listing || key == ""
	switch {
	case b.failed != 0:
		w.WriteHeader(b.failed)
		fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
	case listing:
		b.list(w, r.URL.Query())
	case b.gone[key] != "":
		w.WriteHeader(map[string]int{"NoSuchKey": http.StatusNotFound, "InvalidObjectState": http.StatusForbidden}[b.gone[key]])
		fmt.Fprintf(w, `<Error><Code>%s</Code><Message>words</Message></Error>`, b.gone[key])
	default:
		b.reads++
		_, _ = io.WriteString(w, b.objects[key])
	}
}

// list writes keys as S3 does: without an encoding a control character makes the list one that no XML parser reads.
func (b *bucket) list(w http.ResponseWriter, q url.Values) {
	prefix, encoding := q.Get("prefix"), q.Get("encoding-type")
	after, _ := url.QueryUnescape(q.Get("continuation-token"))
	var keys []string
	for key := range b.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	more := len(keys) > 2
	keys = keys[:min(2, len(keys))]
	fmt.Fprintf(w, `<ListBucketResult><IsTruncated>%t</IsTruncated>`, more)
	if encoding != "" {
		fmt.Fprintf(w, "<EncodingType>%s</EncodingType>", encoding)
	}
	for _, key := range keys {
		escaped := strings.ReplaceAll(html.EscapeString(key), "\x01", "&#x1;")
		if encoding == "url" {
			escaped = url.QueryEscape(key)
		}
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", escaped, len(b.objects[key]))
	}
	if more {
		fmt.Fprintf(w, "<NextContinuationToken>%s</NextContinuationToken>", url.QueryEscape(keys[1]))
	}
	fmt.Fprint(w, `</ListBucketResult>`)
}

func TestS3Prefix(t *testing.T) {
	t.Parallel()
	b := &bucket{objects: map[string]string{
		"help/holidays.md":   "# Holidays\n\nEvery employee has twenty-five days of holiday a year.",
		"help/费用/报销 & co.md": "# 报销\n\n出差的费用在三十天内报销。",
		"help/c.txt":         "A printer stands in the cellar.",
		"help/picture.png":   "\x89PNG",
		"help/.hidden.md":    "# Printer\n\nhidden printer",
		"helpless/x.md":      "# Printer\n\nAnother printer stands elsewhere.",
	}}
	documents := retrieval.S3(awsAt(serve(t, b.serve)), "docs", "help")
	if b.reads != 0 {
		t.Fatal("the bucket was read before it was needed")
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for query, want := range map[string]string{
				"How many days of holiday do I have?": "holidays 1", "出差费用怎么报销？": "费用/报销 & co 1", "Where is the printer?": "c.txt 1",
			} {
				if got := retrieve(t, documents, query, 3); len(got) != 1 || name(got[0]) != want {
					t.Errorf("Retrieve(%q): got %q, want %q", query, names(got), want)
				}
			}
		})
	}
	wg.Wait()
	if b.reads != 3 {
		t.Errorf("objects were read %d times, want each of the three once", b.reads)
	}
}

func TestS3ThatCannotBeReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := &bucket{objects: map[string]string{"a.md": "# Holidays\n\nTwenty-five days of holiday."}, failed: http.StatusForbidden}
	documents := retrieval.S3(awsAt(serve(t, b.serve)), "docs", "")
	<-documents.Begin(t.Context(), slog.New(slog.DiscardHandler))
	_, err := documents.Retrieve(t.Context(), "holiday", 3)
	if task.FailureOf(err).Code != "RETRIEVAL_ACCESS_DENIED" || !task.IsPermanent(err) {
		t.Errorf("got %v with code %s, want RETRIEVAL_ACCESS_DENIED", err, task.FailureOf(err).Code)
	}
	b.mu.Lock()
	b.failed = http.StatusServiceUnavailable
	b.mu.Unlock()
	if _, err := documents.Retrieve(t.Context(), "holiday", 3); err == nil || task.FailureOf(err).Code == task.CodeFailed {
		t.Errorf("got %v, want an error with a code", err)
	}
	b.mu.Lock()
	b.failed = 0
	b.mu.Unlock()
	if got := retrieve(t, documents, "How many days of holiday?", 3); len(got) != 1 {
		t.Errorf("once it can be read: got %q", names(got))
	}
}

func TestS3KeysOfAnyForm(t *testing.T) {
	t.Parallel()
	keys := []string{"a+b.md", "a b%2B.md", "a&amp;<b>.md", "费用 ☂.md", "d//e.md", "q?x=1#y.md", "control\x01.md", "x'y\"z.txt"}
	b := &bucket{objects: map[string]string{"picture\x01.png": "x"}}
	for _, key := range keys {
		b.objects[key] = "The printer stands in the cellar."
	}
	got := retrieve(t, retrieval.S3(awsAt(serve(t, b.serve)), "docs", ""), "Where is the printer?", 100)
	var found []string
	for _, p := range got {
		found = append(found, p.Document)
	}
	for _, key := range keys {
		if !slices.Contains(found, strings.TrimSuffix(key, ".md")) {
			t.Errorf("%q is not found among %q", key, found)
		}
	}
}

// A document that is deleted while the bucket is read is no reason to fail a question for good.
func TestS3DocumentThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	b := &bucket{
		objects: map[string]string{"a.md": "# Old\n\nThe printer was upstairs.", "b.md": "# New\n\nThe printer stands in the cellar."},
		gone:    map[string]string{"a.md": "NoSuchKey"},
	}
	got := retrieve(t, retrieval.S3(awsAt(serve(t, b.serve)), "docs", ""), "Where is the printer?", 3)
	if len(got) != 1 || got[0].Document != "b" {
		t.Errorf("got %q, want what is still there", names(got))
	}
}

func TestS3DocumentThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	b := &bucket{objects: map[string]string{"help/a.md": "x", "help/old.md": "y"}, gone: map[string]string{"help/old.md": "InvalidObjectState"}}
	_, err := retrieval.S3(awsAt(serve(t, b.serve)), "docs", "help").Retrieve(t.Context(), "x", 1)
	if failure := task.FailureOf(err); failure.Code != "RETRIEVAL_ACCESS_DENIED" || !strings.Contains(failure.Message, `"old.md"`) {
		t.Errorf("got %+v, want RETRIEVAL_ACCESS_DENIED and the document's name", failure)
	}
}

// With a prefix that is misspelled, or filled later, every answer would be that the documents do not say.
func TestS3PrefixWithoutDocuments(t *testing.T) {
	t.Parallel()
	b := &bucket{objects: map[string]string{"help/a.pdf": "%PDF", "help/empty.md": ""}}
	documents := retrieval.S3(awsAt(serve(t, b.serve)), "docs", "help")
	_, err := documents.Retrieve(t.Context(), "Where is the printer?", 3)
	if err == nil || task.FailureOf(err).Code != "RETRIEVAL_NOT_FOUND" || !task.IsPermanent(err) || !strings.Contains(err.Error(), "below s3://docs/help/") {
		t.Errorf("got %v, want RETRIEVAL_NOT_FOUND with the place", err)
	}
	b.mu.Lock()
	b.objects["help/b.md"] = "The printer stands in the cellar."
	b.mu.Unlock()
	if got := retrieve(t, documents, "Where is the printer?", 3); len(got) != 1 {
		t.Errorf("once there is one: got %q", names(got))
	}
}

func TestS3BeyondTheBounds(t *testing.T) {
	t.Parallel()
	b := &bucket{objects: map[string]string{"a.md": strings.Repeat("x", retrieval.MaxDocumentBytes+1)}}
	_, err := retrieval.S3(awsAt(serve(t, b.serve)), "docs", "").Retrieve(t.Context(), "x", 1)
	if !task.IsPermanent(err) || !strings.Contains(err.Error(), "larger than 4 MB") || b.reads != 0 {
		t.Errorf("got %v after %d reads, want a permanent error before any", err, b.reads)
	}
}

func TestWaitingForDocumentsEndsWithTheTask(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	documents := retrieval.Load(func(context.Context) ([]agent.Passage, error) {
		close(began)
		<-release
		return []agent.Passage{{Document: "a", Number: 1, Text: "printer"}}, nil
	})
	done := documents.Begin(t.Context(), slog.New(slog.DiscardHandler))
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := documents.Retrieve(ctx, "printer", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	close(release)
	<-done
	if got := retrieve(t, documents, "printer", 1); len(got) != 1 {
		t.Errorf("got %q, want the passage", names(got))
	}
}

const knowledgeBaseAnswer = `{"retrievalResults":[
 {"content":{"text":"Holidays are 25 days. 假期 <&> \"x\""},"location":{"type":"S3","s3Location":{"uri":"s3://docs/help/holidays.pdf"}},"score":0.8,"metadata":{"x-amz-bedrock-kb-document-page-number":4.0}},
 {"content":{"text":"  "},"location":{"type":"WEB","webLocation":{"url":"https://example.com/blank"}}},
 {"content":{"text":"Take them."},"location":{"type":"WEB","webLocation":{"url":"https://example.com/take"}},"score":0.5},
 {"content":{"text":"Source."},"metadata":{"x-amz-bedrock-kb-source-uri":"s3://docs/x.md"}},
 {"content":{"text":"one too many"}}]}`

func TestKnowledgeBase(t *testing.T) {
	t.Parallel()
	var path, body string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		path, body = r.URL.Path, string(raw)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, knowledgeBaseAnswer)
	})
	b := retrieval.NewKnowledgeBase(awsAt(url), "ABCDEFGHIJ")
	got := retrieve(t, b, "How many holidays?", 3)
	want := []agent.Passage{
		{Document: "s3://docs/help/holidays.pdf", Number: 4, Title: "holidays.pdf", Text: "Holidays are 25 days. 假期 <&> \"x\""},
		{Document: "https://example.com/take", Number: 2, Title: "take", Text: "Take them."},
		{Document: "s3://docs/x.md", Number: 3, Title: "x.md", Text: "Source."},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("passages (-want +got):\n%s", diff)
	}
	if path != "/knowledgebases/ABCDEFGHIJ/retrieve" || !strings.Contains(body, `"text":"How many holidays?"`) || !strings.Contains(body, `"numberOfResults":3`) {
		t.Errorf("asked %s %s", path, body)
	}

	retrieve(t, b, strings.Repeat("界", 2000)+"end", 1)
	if !strings.Contains(body, strings.Repeat("界", 997)+"end") || strings.Contains(body, strings.Repeat("界", 998)) {
		t.Errorf("a long query is not cut to its last 1000 characters: %d bytes", len(body))
	}
	body = ""
	if got := retrieve(t, b, " ", 3); len(got) != 0 || got == nil || body != "" {
		t.Errorf("a blank query: got %v, asked %q, want nothing", got, body)
	}
}

func TestKnowledgeBaseFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status    int
		kind      string
		code      string
		permanent bool
	}{
		"throttled": {429, "ThrottlingException", "RETRIEVAL_THROTTLED", false},
		"missing":   {404, "ResourceNotFoundException", "RETRIEVAL_NOT_FOUND", true},
		"denied":    {403, "AccessDeniedException", "RETRIEVAL_ACCESS_DENIED", true},
		"down":      {500, "InternalServerException", "RETRIEVAL_UNAVAILABLE", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("X-Amzn-Errortype", tt.kind)
				w.Header().Set("Retry-After", "5")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, `{"message":"words"}`)
			})
			c := awsAt(url)
			c.RetryMaxAttempts = 0 // the SDK's own number, were it asked to retry
			_, err := retrieval.NewKnowledgeBase(c, "ABCDEFGHIJ").Retrieve(t.Context(), "q", 1)
			if task.FailureOf(err).Code != tt.code || task.IsPermanent(err) != tt.permanent || asked != 1 {
				t.Errorf("got %v with code %s after %d requests, want %s after one", err, task.FailureOf(err).Code, asked, tt.code)
			}
		})
	}
}
