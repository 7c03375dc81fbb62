package httpapi

import "context"

// route is one call of the API. path is a pattern of [net/http.ServeMux].
type route struct {
	method, path string
	handle       handler
}

// handler answers one request. Its error is what the client gets instead, see [problemOf].
type handler func(ctx context.Context, c *call) (answer, error)

func (a *api) routes() []route {
	return []route{
		{"POST", "/agent/query", a.postQuery},
		{"POST", "/agent/tickets/{ticket_id}", a.postTicket},
		{"POST", "/agent/tasks", a.postTask},
		{"GET", "/agent/tasks/{task_id}", a.getTask},
		{"GET", "/agent/result/{thread_id}", a.getResult},
		{"GET", "/agent/threads/{thread_id}/history", a.getHistory},
		{"GET", "/agent/threads/{thread_id}/checkpoints/{n}", a.getCheckpoint},
		{"GET", "/agent/tickets/{ticket_id}", a.getTicket},
		{"GET", "/healthz", getHealth},
	}
}

// getHealth says that the process answers. It asks neither the table nor the queue: a probe that fails
// with them would restart what is not broken.
func getHealth(context.Context, *call) (answer, error) {
	body, err := new(object).add("status", "ok").bytes()
	return answer{body: body}, err
}
