package httpapi

import (
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// schema is a JSON Schema of the 2020-12 draft, or another object of an OpenAPI document.
type schema map[string]any

// operation is what a call's entry in the OpenAPI document says. What its path says is not repeated.
type operation struct {
	id, summary, description string
	query                    []parameter
	// body is the name of the request body's schema, "" when the call has none.
	body         string
	bodyOptional bool
	idempotent   bool // takes an Idempotency-Key
	success      response
	// problems are the statuses of its problem documents, besides those that every call can have.
	problems []int
}

type parameter struct {
	name, description string
	schema            schema
}

// response is how a call succeeds.
type response struct {
	status      int
	description string
	media       string // "" is JSON
	schema      schema
	headers     []string // names from [headers]
	conditional bool     // 304 for who has it already
}

// getOpenAPI describes the API to programs.
func (a *api) getOpenAPI(_ context.Context, c *call) (answer, error) {
	return a.openAPI().answer(c.Request), nil
}

// makeOpenAPI writes the document for the routes as they are.
func (a *api) makeOpenAPI() asset {
	paths := schema{}
	for _, r := range a.routes() {
		item, _ := paths[r.path].(schema)
		if item == nil {
			item = schema{}
			paths[r.path] = item
		}
		item[strings.ToLower(r.method)] = r.describe()
	}
	components := schema{"schemas": shapes(a.Tasks.Names()), "headers": headers()}
	// Strings, numbers and lists of ours cannot fail to encode.
	body, _ := json.Marshal(schema{
		"openapi": "3.1.1",
		"info": schema{
			"title": "agentworker", "version": "1", "description": aboutAPI,
			"license": schema{"name": "MIT", "identifier": "MIT"},
		},
		"paths": paths, "components": components,
	}, json.Deterministic(true))
	return newAsset(body, map[string]string{"Content-Type": "application/json"})
}

var pathVariable = regexp.MustCompile(`\{(\w+)\}`)

func (r route) describe() schema {
	o := r.about
	parameters := []schema{}
	for _, found := range pathVariable.FindAllStringSubmatch(r.path, -1) {
		parameters = append(parameters, schema{"name": found[1], "in": "path", "required": true, "schema": pathVariables[found[1]]})
	}
	for _, p := range o.query {
		parameters = append(parameters, schema{"name": p.name, "in": "query", "description": p.description, "schema": p.schema})
	}
	if o.idempotent {
		parameters = append(parameters, schema{"name": idempotencyHeader, "in": "header", "description": aboutIdempotencyKey, "schema": idempotencyKeySchema})
	}
	if o.success.conditional {
		parameters = append(parameters, schema{"name": "If-None-Match", "in": "header", "description": "The ETag of a copy at hand.", "schema": schema{"type": "string"}})
	}
	out := schema{"operationId": o.id, "summary": o.summary, "responses": o.responses()}
	if o.description != "" {
		out["description"] = o.description
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	if o.body != "" {
		out["requestBody"] = schema{"required": !o.bodyOptional, "content": content("application/json", ref(o.body))}
	}
	return out
}

// anyCall are the statuses of the problems that no call is safe from.
var anyCall = []int{http.StatusNotAcceptable, http.StatusInternalServerError, http.StatusServiceUnavailable}

func (o operation) responses() schema {
	s := o.success
	media := s.media
	if media == "" {
		media = "application/json"
	}
	out := schema{strconv.Itoa(s.status): schema{
		"description": s.description, "content": content(media, s.schema), "headers": headerRefs(s.headers...),
	}}
	if s.conditional {
		out["304"] = schema{"description": "The copy at hand is still good.", "headers": headerRefs("ETag")}
	}
	for _, status := range slices.Concat(o.problems, anyCall) {
		r := schema{
			"description": http.StatusText(status) + ": " + aboutStatus[status],
			"content":     content("application/problem+json", ref("Problem")),
		}
		if status == http.StatusServiceUnavailable {
			r["headers"] = headerRefs("Retry-After")
		}
		out[strconv.Itoa(status)] = r
	}
	return out
}

func content(media string, s schema) schema { return schema{media: schema{"schema": s}} }

func ref(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

func headerRefs(names ...string) schema {
	refs := schema{}
	for _, name := range names {
		refs[name] = schema{"$ref": "#/components/headers/" + name}
	}
	return refs
}

// merged is base with what more says besides.
func merged(base, more schema) schema {
	out := maps.Clone(base)
	maps.Copy(out, more)
	return out
}
