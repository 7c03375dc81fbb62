package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	faults "github.com/pb33f/libopenapi-validator/errors"

	"agentworker/internal/httpapi"
	"agentworker/internal/topology"
)

// described holds what goes through h against what /openapi.json says of it: every answer has to be one that the
// document has for its call, and every request that was taken has to be one that it allows.
func described(t *testing.T, h http.Handler) http.Handler {
	t.Helper()
	d, err := description()
	if err != nil {
		t.Fatalf("the API's description: %v", err)
	}
	tally := &tally{seen: map[string]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent bytes.Buffer
		seen := r.Clone(r.Context())
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, &sent), r.Body}
		got := &copied{ResponseWriter: w}
		h.ServeHTTP(got, r)
		if r.Context().Err() != nil || !tally.few(d.route(seen), got.status) {
			return // nobody has read the answer, or many like it were looked at
		}
		if err := d.check(seen, sent.Bytes(), got); err != nil {
			t.Errorf("%s %.200s: %d is not as described: %v", r.Method, r.URL, got.status, err)
		}
	})
}

// tally counts answers of one kind: the thousandth of a flood tells nothing new, and looking at it takes time.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) few(route string, status int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := fmt.Sprint(route, status)
	c.seen[kind]++
	return c.seen[kind] <= 50
}

// copied keeps what is written.
type copied struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *copied) WriteHeader(status int) { c.status = status; c.ResponseWriter.WriteHeader(status) }

func (c *copied) Write(b []byte) (int, error) {
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

type describer struct {
	validator.Validator
	routes *http.ServeMux
}

// description is made once for all tests: they describe the same API.
var description = sync.OnceValues(func() (*describer, error) {
	doc, err := libopenapi.NewDocument(sealed(openAPI()))
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	d := &describer{v, http.NewServeMux()}
	for _, route := range topology.Routes() {
		d.routes.Handle(strings.TrimSuffix(route, " /")+map[bool]string{true: " /{$}"}[strings.HasSuffix(route, " /")], http.NotFoundHandler())
	}
	return d, nil
})

// openAPI is the document as it is served.
func openAPI() []byte {
	var w httptest.ResponseRecorder
	w.Body = new(bytes.Buffer)
	types, err := testTypes()
	if err != nil {
		panic(err)
	}
	httpapi.New(httpapi.Config{Tasks: types, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(&w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/openapi.json", nil))
	return w.Body.Bytes()
}

// sealed is the document with every object closed to members that it does not name. Clients have to bear more members;
// the tests do not, so that none goes out undescribed.
func sealed(text []byte) []byte {
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(err)
	}
	seal(doc["components"].(map[string]any)["schemas"].(map[string]any))
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return text
}

func seal(node any) {
	switch node := node.(type) {
	case map[string]any:
		_, object := node["properties"].(map[string]any)
		// What a task type takes besides is its own affair, and its schema says so.
		_, open := node["not"]
		if _, told := node["additionalProperties"]; object && !told && !open {
			node["additionalProperties"] = false
		}
		for _, child := range node {
			seal(child)
		}
	case []any:
		for _, child := range node {
			seal(child)
		}
	}
}

// unmeasurable are numbers that the validator, unlike the API, cannot read.
var unmeasurable = regexp.MustCompile(`([:\[,]\s*)-?[0-9.]+[eE][+-]?[0-9]{3,}`)

func (d *describer) check(r *http.Request, sent []byte, got *copied) error {
	if r.Method == http.MethodHead {
		return nil // is GET without a body
	}
	sent = unmeasurable.ReplaceAll(sent, []byte("${1}0"))
	body := unmeasurable.ReplaceAll(got.body.Bytes(), []byte("${1}0"))
	resp := &http.Response{StatusCode: got.status, Header: got.Header(), Body: io.NopCloser(bytes.NewReader(body))}
	// The mux has a route for unclean paths as well: to the clean one.
	if d.route(r) == "" {
		// No call of the document: its answer is the problem document that calls of it have.
		if got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed {
			return fmt.Errorf("no route, and no 404 or 405")
		}
		resp.StatusCode = http.StatusNotFound
		r = httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/agent/tickets/x", nil)
	}
	r.Body = io.NopCloser(bytes.NewReader(sent))
	if _, errs := d.ValidateHttpResponse(r, resp); len(errs) > 0 {
		return told(errs)
	}
	if got.status >= http.StatusBadRequest {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(sent))
	r.ContentLength = int64(len(sent))
	if len(sent) == 0 {
		r.Header.Del("Content-Type")
	} else {
		r.Header.Set("Content-Type", "application/json") // what else is taken for JSON is no part of the description
	}
	if _, errs := d.ValidateHttpRequestSync(r); len(errs) > 0 {
		return fmt.Errorf("taken, but not described: %w", told(errs))
	}
	return nil
}

// route is the pattern that the request falls under, "" when there is none.
func (d *describer) route(r *http.Request) string {
	// The mux has a pattern for unclean paths as well: the one that it redirects to.
	if p := r.URL.EscapedPath(); !strings.HasPrefix(p, "/") || path.Clean(p) != p {
		return ""
	}
	_, pattern := d.routes.Handler(r)
	return pattern
}

func told(errs []*faults.ValidationError) error {
	var all []error
	for _, e := range errs {
		reasons := []string{e.Message, e.Reason}
		for _, s := range e.SchemaValidationErrors {
			reasons = append(reasons, s.FieldPath+" "+s.Reason)
		}
		all = append(all, errors.New(strings.Join(slices.Compact(reasons), "; ")))
	}
	return errors.Join(all...)
}
