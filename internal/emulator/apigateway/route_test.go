package apigateway_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/emulator/apigateway"
)

func TestRouteSelection(t *testing.T) {
	t.Parallel()
	guide := []string{"GET /pets/dog/1", "GET /pets/dog/{id}", "GET /pets/{proxy+}", "ANY /{proxy+}", "$default"}
	slices.Reverse(guide) // the order in which they are given decides nothing
	ours := []string{"POST /agent/query", "GET /agent/tasks/{task_id}", "GET /agent/threads/{thread_id}/checkpoints/{n}", "GET /"}
	for _, c := range []struct {
		routes     []string
		request    string
		key        string // empty: 404
		parameters map[string]string
	}{
		{guide, "GET /pets/dog/1", "GET /pets/dog/1", nil},
		{guide, "GET /pets/dog/2", "GET /pets/dog/{id}", map[string]string{"id": "2"}},
		{guide, "GET /pets/cat/1", "GET /pets/{proxy+}", map[string]string{"proxy": "cat/1"}},
		{guide, "POST /test/5", "ANY /{proxy+}", map[string]string{"proxy": "test/5"}},
		{guide, "GET /", "$default", nil},
		{[]string{"ANY /a", "GET /a"}, "GET /a", "GET /a", nil},
		{[]string{"ANY /a", "GET /a"}, "PUT /a", "ANY /a", nil},
		{[]string{"GET /{a}", "GET /x"}, "GET /x", "GET /x", nil},
		{[]string{"GET /{p+}", "GET /x/{p+}"}, "GET /x/y/z", "GET /x/{p+}", map[string]string{"p": "y/z"}},
		{ours, "GET /agent/tasks/th-1.01J", "GET /agent/tasks/{task_id}", map[string]string{"task_id": "th-1.01J"}},
		{ours, "GET /agent/tasks/a%2Eb%20c", "GET /agent/tasks/{task_id}", map[string]string{"task_id": "a.b c"}},
		{ours, "GET /agent/threads/t/checkpoints/3", "GET /agent/threads/{thread_id}/checkpoints/{n}", map[string]string{"thread_id": "t", "n": "3"}},
		{ours, "GET /", "GET /", nil},
		{ours, "HEAD /", "", nil},
		{ours, "GET /agent/query", "", nil},
		{ours, "POST /agent/query/", "", nil},
		{ours, "POST /Agent/query", "", nil},
		{ours, "GET /agent/tasks/", "", nil},
		{ours, "GET /agent/tasks/a%2Fb", "", nil},
		{ours, "GET /agent/tasks/a/b", "", nil},
	} {
		fn := returns(`{"statusCode":200}`)
		g := gateway(t, apigateway.Config{Routes: c.routes, Function: fn})
		method, path, _ := strings.Cut(c.request, " ")
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		if c.key == "" {
			if want := `{"message":"Not Found"}`; w.Code != 404 || w.Body.String() != want {
				t.Errorf("%s: got %d %s, want 404 %s", c.request, w.Code, w.Body, want)
			}
			continue
		}
		if w.Code != 200 {
			t.Errorf("%s: got %d %s, want 200", c.request, w.Code, w.Body)
			continue
		}
		_, event := fn.event(t)
		if event.RouteKey != c.key || event.RequestContext.RouteKey != c.key {
			t.Errorf("%s: got route %q, want %q", c.request, event.RouteKey, c.key)
		}
		if diff := cmp.Diff(c.parameters, event.PathParameters); diff != "" {
			t.Errorf("%s: path parameters (-want +got):\n%s", c.request, diff)
		}
	}
}

func TestBadRoutesAreAllReported(t *testing.T) {
	t.Parallel()
	_, err := apigateway.New(apigateway.Config{Function: returns(""), Routes: []string{
		"GET /fine", "GET", "get /x", "GET x", "GET /a{b}", "GET /{a}/{a}", "GET /{a+}/b", "GET /{x}", "GET /{y}",
	}})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{`"GET"`, `"get /x"`, `"GET x"`, `"GET /a{b}"`, `"GET /{a}/{a}"`, `"GET /{a+}/b"`, `"GET /{x}" and "GET /{y}"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "/fine") {
		t.Errorf("got %v, want no word about the good route", err)
	}
	for name, config := range map[string]apigateway.Config{
		"no routes":   {Function: returns("")},
		"no function": {Routes: []string{"$default"}},
	} {
		if _, err := apigateway.New(config); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
