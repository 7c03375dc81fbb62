package apigateway

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const defaultKey = "$default"

// route is a parsed route key. The zero segments of $default match nothing; it is found by its key.
type route struct {
	key      string
	method   string // ANY takes all
	segments []segment
}

type kind int

const (
	literal kind = iota
	variable
	greedy
)

type segment struct {
	kind kind
	text string // the literal, or the variable's name
}

type match struct {
	route      route
	parameters map[string]string // nil when the route has no variables
}

var (
	methodPattern   = regexp.MustCompile(`^(ANY|GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)$`)
	variablePattern = regexp.MustCompile(`^\{([A-Za-z0-9_.:-]+)(\+?)\}$`)
)

// parseRoutes returns the routes with the best first, so that the first that fits is the one to take: full matches before
// greedy variables, literals before variables, a method of its own before ANY, $default last.
// Source: API Gateway Developer Guide, "Create routes for HTTP APIs", "Routing API requests".
func parseRoutes(keys []string) ([]route, error) {
	if len(keys) == 0 {
		return nil, errors.New("apigateway: Routes is empty: give at least one route key, such as \"GET /tasks/{task_id}\"")
	}
	var routes []route
	var problems []error
	shapes := map[string]string{}
	for _, key := range keys {
		r, err := parseRoute(key)
		if err != nil {
			problems = append(problems, fmt.Errorf("apigateway: route key %q: %w", key, err))
			continue
		}
		if other, ok := shapes[r.shape()]; ok {
			problems = append(problems, fmt.Errorf("apigateway: route keys %q and %q match the same requests: drop one", other, key))
		}
		shapes[r.shape()] = key
		routes = append(routes, r)
	}
	slices.SortStableFunc(routes, compare)
	return routes, errors.Join(problems...)
}

func parseRoute(key string) (route, error) {
	if key == defaultKey {
		return route{key: key, method: "ANY"}, nil
	}
	method, path, ok := strings.Cut(key, " ")
	if !ok || !methodPattern.MatchString(method) || !strings.HasPrefix(path, "/") {
		return route{}, errors.New("write it as a method or ANY, a space, and a path that starts with a slash")
	}
	r := route{key: key, method: method}
	names := map[string]bool{}
	parts := split(path)
	for i, part := range parts {
		if !strings.ContainsAny(part, "{}") {
			r.segments = append(r.segments, segment{literal, part})
			continue
		}
		found := variablePattern.FindStringSubmatch(part)
		switch {
		case found == nil:
			return route{}, fmt.Errorf("%q is no variable: a variable fills a whole segment, as {name} or {name+}", part)
		case names[found[1]]:
			return route{}, fmt.Errorf("variable %q occurs twice", found[1])
		case found[2] == "+" && i != len(parts)-1:
			return route{}, fmt.Errorf("greedy variable %q is not at the end", found[1])
		}
		names[found[1]] = true
		k := variable
		if found[2] == "+" {
			k = greedy
		}
		r.segments = append(r.segments, segment{k, found[1]})
	}
	return r, nil
}

func (r route) shape() string {
	var b strings.Builder
	b.WriteString(r.method)
	if r.key == defaultKey {
		b.WriteString(defaultKey)
	}
	for _, s := range r.segments {
		b.WriteByte('/')
		switch s.kind {
		case literal:
			b.WriteString(s.text)
		case variable:
			b.WriteString("{}")
		case greedy:
			b.WriteString("{+}")
		}
	}
	return b.String()
}

func (r route) greedy() bool {
	return len(r.segments) > 0 && r.segments[len(r.segments)-1].kind == greedy
}

func compare(a, b route) int {
	rank := func(r route) int {
		switch {
		case r.key == defaultKey:
			return 2
		case r.greedy():
			return 1
		default:
			return 0
		}
	}
	if order := cmp.Compare(rank(a), rank(b)); order != 0 {
		return order
	}
	for i := range min(len(a.segments), len(b.segments)) {
		if order := cmp.Compare(a.segments[i].kind, b.segments[i].kind); order != 0 {
			return order
		}
	}
	// Among greedy ones the longer path says more.
	if order := cmp.Compare(len(b.segments), len(a.segments)); order != 0 {
		return order
	}
	return cmp.Compare(anyRank(a.method), anyRank(b.method))
}

func anyRank(method string) int {
	if method == "ANY" {
		return 1
	}
	return 0
}

// find takes the decoded path, as API Gateway does: an encoded slash is a slash.
func find(routes []route, method, path string) (match, bool) {
	parts := split(path)
	for _, r := range routes {
		if r.method != "ANY" && r.method != method {
			continue
		}
		if r.key == defaultKey {
			return match{route: r}, true
		}
		if parameters, ok := r.fit(parts); ok {
			return match{r, parameters}, true
		}
	}
	return match{}, false
}

func (r route) fit(parts []string) (map[string]string, bool) {
	if len(parts) != len(r.segments) && !(r.greedy() && len(parts) > len(r.segments)) {
		return nil, false
	}
	var parameters map[string]string
	for i, s := range r.segments {
		value := parts[i]
		switch {
		case s.kind == literal && value != s.text, s.kind == variable && value == "":
			return nil, false
		case s.kind == literal:
			continue
		case s.kind == greedy:
			value = strings.Join(parts[i:], "/")
			if value == "" {
				return nil, false
			}
		}
		if parameters == nil {
			parameters = map[string]string{}
		}
		parameters[s.text] = value
	}
	return parameters, true
}

func split(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }
