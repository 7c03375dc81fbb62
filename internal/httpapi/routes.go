package httpapi

import (
	"context"
	"time"
)

// route is one call of the API. What the routes are to API Gateway is in topology.Routes.
type route struct {
	method, path string
	handle       handler
	about        operation
	// patience is how much longer than others the call may take, because it can be asked to wait.
	patience time.Duration
}

// handler answers one request. Its error is what the client gets instead, see [problemOf].
type handler func(ctx context.Context, c *call) (answer, error)

func (a *api) routes() []route {
	return []route{
		{method: "POST", path: "/agent/query", handle: a.postQuery, about: aboutPostQuery},
		{method: "POST", path: "/agent/tickets/{ticket_id}", handle: a.postTicket, about: aboutPostTicket},
		{method: "POST", path: "/agent/tasks", handle: a.postTask, about: aboutPostTask},
		{method: "GET", path: "/agent/tasks/{task_id}", handle: a.getTask, about: aboutGetTask, patience: maxWait},
		{method: "GET", path: "/agent/result/{thread_id}", handle: a.getResult, about: aboutGetResult},
		{method: "GET", path: "/agent/threads/{thread_id}/history", handle: a.getHistory, about: aboutGetHistory},
		{method: "GET", path: "/agent/threads/{thread_id}/checkpoints/{n}", handle: a.getCheckpoint, about: aboutGetCheckpoint},
		{method: "GET", path: "/agent/tickets/{ticket_id}", handle: a.getTicket, about: aboutGetTicket},
		{method: "GET", path: "/healthz", handle: getHealth, about: aboutGetHealth},
		{method: "GET", path: "/openapi.json", handle: a.getOpenAPI, about: aboutGetOpenAPI},
		{method: "GET", path: "/", handle: a.getPage, about: aboutGetPage},
	}
}

// pattern is the route in the form of [net/http.ServeMux], to which "/" would mean every path.
func (r route) pattern() string {
	if r.path == "/" {
		return r.method + " /{$}"
	}
	return r.method + " " + r.path
}

// getHealth says that the process answers. It asks neither the table nor the queue: a probe that fails
// with them would restart what is not broken.
func getHealth(context.Context, *call) (answer, error) {
	body, err := new(object).add("status", "ok").bytes()
	return answer{body: body}, err
}
