package httpapi_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"agentworker/internal/httpapi"
	"agentworker/internal/topology"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestOpenAPIDocumentIsValid(t *testing.T) {
	t.Parallel()
	doc, err := libopenapi.NewDocument(openAPI())
	if err != nil {
		t.Fatal(err)
	}
	if got := doc.GetVersion(); !strings.HasPrefix(got, "3.1.") {
		t.Errorf("version: got %s, want 3.1", got)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if _, errs := v.ValidateDocument(); len(errs) > 0 {
		t.Errorf("document: %v", told(errs))
	}
}

// What API Gateway lets through, what the mux serves and what is described are the same.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[string]bool{}
	for path, item := range doc.Paths {
		for method, operation := range item {
			got = append(got, strings.ToUpper(method)+" "+path)
			if ids[operation.OperationID] || operation.OperationID == "" {
				t.Errorf("%s %s: operation id %q: want one of its own", method, path, operation.OperationID)
			}
			ids[operation.OperationID] = true
		}
	}
	want := topology.Routes()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("described: got %q, want %q", got, want)
	}
}

func TestAssetsAreKeptByTheirTag(t *testing.T) {
	t.Parallel()
	c := start(t, func(cfg *httpapi.Config) { cfg.Store = none{} })
	for _, path := range []string{"/openapi.json", "/"} {
		first := c.get(path)
		tag := first.Header.Get("ETag")
		if first.StatusCode != 200 || len(first.body) == 0 || !strings.HasPrefix(tag, `"`) || first.Header.Get("Cache-Control") != "no-cache" {
			t.Fatalf("%s: got %d %v, want it with a strong tag", path, first.StatusCode, first.Header)
		}
		for given, want := range map[string]int{tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, strings.Trim(tag, `"`): 200, "": 200} {
			r := c.do(c.request("GET", path, "", "If-None-Match", given))
			if r.StatusCode != want || r.Header.Get("ETag") != tag || want == 304 && len(r.body) > 0 {
				t.Errorf("%s, If-None-Match %s: got %d with %d bytes, want %d", path, given, r.StatusCode, len(r.body), want)
			}
		}
		head := c.do(c.request(http.MethodHead, path, ""))
		if head.StatusCode != 200 || len(head.body) != 0 || head.ContentLength != int64(len(first.body)) || head.Header.Get("ETag") != tag {
			t.Errorf("HEAD %s: got %d, %d bytes", path, head.StatusCode, head.ContentLength)
		}
		c.problem(c.do(c.request("POST", path, "")), 405, httpapi.CodeMethodNotAllowed)
	}
}

// The tests of the description must be able to fail.
func TestUndescribedAnswersAreSeen(t *testing.T) {
	t.Parallel()
	d, err := description()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		method, target, sent string
		status               int
		got                  string
	}{
		"status that the call does not have": {"GET", "/healthz", "", 404, `{"status":"ok"}`},
		"member that nobody has described":   {"GET", "/healthz", "", 200, `{"status":"ok","more":1}`},
		"value of another type":              {"GET", "/agent/tickets/TK-1", "", 200, `{"ticket_id":"TK-1","status":"open","version":"1","updated_at":null}`},
		"member that is missing":             {"GET", "/agent/tickets/TK-1", "", 200, `{"ticket_id":"TK-1","status":"open","version":1}`},
		"problem without a code":             {"GET", "/nowhere", "", 404, `{"type":"about:blank","title":"x","status":404,"detail":"x","errors":[]}`},
		"request that should not be taken":   {"POST", "/agent/tickets/TK-1", `{"state":"open"}`, 202, `{"task_id":"th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB","message_id":"m","thread_id":"th-1","status":"queued"}`},
		"wait that should not be taken":      {"GET", "/agent/tasks/th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB?wait=26", "", 200, `{"task_id":"th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB","task":"echo","thread_id":"th-1","status":"queued","attempts":0,"step":"","error":null,"tokens":{"input":0,"output":0},"submitted_at":null,"updated_at":null,"next_retry_at":null,"result":null}`},
	} {
		c := &copied{ResponseWriter: newHeaders(tc.status), status: tc.status}
		c.body.WriteString(tc.got)
		r, err := http.NewRequestWithContext(t.Context(), tc.method, tc.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.check(r, []byte(tc.sent), c); err == nil {
			t.Errorf("%s: got no complaint", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// newHeaders has the headers that an answer of the status has.
func newHeaders(status int) http.ResponseWriter {
	w := httptest.NewRecorder()
	media := "application/json"
	if status >= http.StatusBadRequest {
		media = "application/problem+json"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Location", "/x")
	w.Header().Set("Retry-After", "1")
	return w
}
