package httpapi

import (
	"net/http"
	"time"

	"agentworker/internal/task"
)

const aboutAPI = "Takes work for an agent, queues it, and shows what became of it.\n\n" +
	"Errors are problem documents (RFC 9457) with a stable `code`. A submission that was answered with 202 ends as a result " +
	"or in a dead-letter queue with its reason; one that was answered with 503 can be sent again, with an Idempotency-Key as " +
	"the same task.\n\n" +
	"What stands in front of the API answers by itself, in JSON with a `message`, to whom it does not let in (401, 403), to a " +
	"path or a method that is none of these, HEAD among them (404), to a body that it does not take (413), and to who asks too " +
	"often (429)."

const aboutIdempotencyKey = "Makes repeating a request safe: for a day, the same key with the same body is the same task, and " +
	"with another body 409. 1 to 255 visible ASCII characters."

// aboutStatus says what a problem's status means; "code" tells more.
var aboutStatus = map[int]string{
	http.StatusBadRequest:            "the body is not one JSON object, or the query string cannot be decoded.",
	http.StatusNotFound:              "there is nothing of this id, or it has expired.",
	http.StatusNotAcceptable:         "the answer is too large to be given uncompressed; ask with \"Accept-Encoding: gzip\".",
	http.StatusConflict:              "the Idempotency-Key was used for another submission.",
	http.StatusRequestEntityTooLarge: "the body, or the message that it makes, is too large.",
	http.StatusUnsupportedMediaType:  "the body is not declared as JSON.",
	http.StatusUnprocessableEntity:   "\"errors\" names every field that is wrong.",
	http.StatusInternalServerError:   "a fault of the API itself.",
	http.StatusServiceUnavailable:    "the table or the queue cannot be reached; send the same request again.",
}

var submitProblems = []int{
	http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
	http.StatusUnprocessableEntity,
}

var accepted = response{
	status: http.StatusAccepted, description: "The task is recorded and on the queue.", schema: ref("Accepted"),
	headers: []string{"Location", "Retry-After"},
}

func found(description, name string) response {
	return response{status: http.StatusOK, description: description, schema: ref(name)}
}

var (
	aboutPostQuery = operation{
		id: "ask", summary: "Queue a question",
		description: "`thread_id` and `question` can stand in the query string instead; in both places they must be the same.",
		query: []parameter{
			{task.FieldThread, "The thread, unless the body names it.", idSchema},
			{"question", "The question, unless the body holds it.", schema{"type": "string"}},
		},
		body: "Query", bodyOptional: true, idempotent: true, success: accepted, problems: submitProblems,
	}
	aboutPostTicket = operation{
		id: "updateTicket", summary: "Queue a change of a ticket, in the ticket's own order",
		body: "TicketUpdate", idempotent: true, success: accepted, problems: submitProblems,
	}
	aboutPostTask = operation{
		id: "submitTask", summary: "Queue a task of any registered type",
		body: "TaskSubmission", idempotent: true, success: accepted, problems: submitProblems,
	}
	aboutGetTask = operation{
		id: "getTask", summary: "How a task stands, and its result once it has one",
		query: []parameter{{
			paramWait, "Answer as soon as the task has succeeded or failed, at the latest after so many seconds.",
			schema{"type": "integer", "minimum": 0, "maximum": int(maxWait / time.Second), "default": 0},
		}},
		success:  found("The task.", "Task"),
		problems: []int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity},
	}
	aboutGetResult = operation{
		id: "getResult", summary: "A thread's newest result",
		success: response{
			status: http.StatusOK, description: "The result, as its task left it; Content-Location is its checkpoint.",
			schema: anything, headers: []string{"Content-Location"},
		},
		problems: []int{http.StatusNotFound},
	}
	aboutGetHistory = operation{
		id: "getHistory", summary: "A page of a thread's tasks with their attempts, oldest first",
		query: []parameter{
			{"limit", "How many tasks at most.", schema{"type": "integer", "minimum": 1, "maximum": maxHistoryLimit, "default": defaultHistoryLimit}},
			{"cursor", "The next_cursor of the page before.", schema{"type": "string"}},
		},
		success:  found("The page.", "History"),
		problems: []int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity},
	}
	aboutGetCheckpoint = operation{
		id: "getCheckpoint", summary: "A thread's state as it was after one of its checkpoints",
		success:  found("The checkpoint and the conversation's newest turns up to it.", "Checkpoint"),
		problems: []int{http.StatusNotFound},
	}
	aboutGetTicket = operation{
		id: "getTicket", summary: "A ticket's state",
		success: found("The ticket.", "Ticket"), problems: []int{http.StatusNotFound},
	}
	aboutGetHealth = operation{
		id: "getHealth", summary: "Whether the API runs; asks neither the table nor the queue",
		success: found("It runs.", "Health"),
	}
	aboutGetOpenAPI = operation{
		id: "getOpenAPI", summary: "This document",
		success: response{
			status: http.StatusOK, description: "An OpenAPI 3.1 document.", schema: schema{"type": "object"}, headers: []string{"ETag"},
			conditional: true,
		},
	}
	aboutGetPage = operation{
		id: "getPage", summary: "A page for people to ask and watch",
		success: response{
			status: http.StatusOK, description: "HTML that needs nothing from elsewhere.", media: "text/html",
			schema: schema{"type": "string"}, headers: []string{"ETag", "Content-Security-Policy"}, conditional: true,
		},
	}
)
