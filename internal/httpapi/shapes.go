package httpapi

import (
	"maps"
	"slices"
	"strings"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// anything is the schema of values that only their task type knows.
var anything = schema{"description": "Any JSON, byte for byte as the task left it."}

const idPattern = "^[A-Za-z0-9][A-Za-z0-9_.:@=+-]*$"

var (
	idSchema       = schema{"type": "string", "pattern": idPattern, "minLength": 1, "maxLength": task.MaxThreadIDLength}
	ticketIDSchema = merged(idSchema, schema{"maxLength": task.MaxTicketIDLength})
	taskIDSchema   = schema{
		"type": "string", "pattern": strings.TrimSuffix(idPattern, "$") + `\.[0-7][0-9A-HJKMNP-TV-Z]{25}$`,
		"description": "<thread_id>.<ULID>", "examples": []string{"th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB"},
	}
	numberSchema         = schema{"type": "integer", "minimum": 1}
	idempotencyKeySchema = schema{"type": "string", "pattern": "^[!-~]{1,255}$"}
	momentSchema         = schema{"type": "string", "format": "date-time", "pattern": `\.[0-9]{3}Z$`}
	textSchema           = schema{"type": "string"}
	countSchema          = schema{"type": "integer", "minimum": 0}
)

// pathVariables are the schemas of what stands in braces in a route.
var pathVariables = schema{
	"thread_id": idSchema, "ticket_id": ticketIDSchema, "task_id": taskIDSchema, "n": numberSchema,
}

func headers() schema {
	header := func(description string, s schema) schema {
		return schema{"description": description, "schema": s, "required": true}
	}
	return schema{
		"Location":                header("Where the task's status is.", textSchema),
		"Content-Location":        header("Where the result's checkpoint is.", textSchema),
		"Retry-After":             header("When to ask next, in seconds.", schema{"type": "integer"}),
		"ETag":                    header("Names this version, for If-None-Match.", textSchema),
		"Content-Security-Policy": header("What the page may load: its own parts.", textSchema),
	}
}

// record is the schema of an object with all of the members.
func record(members schema, description string) schema {
	required := slices.Sorted(maps.Keys(members))
	return schema{"type": "object", "properties": members, "required": required, "description": description}
}

func orNull(s schema) schema { return schema{"oneOf": []schema{s, {"type": "null"}}} }

func listOf(s schema) schema { return schema{"type": "array", "items": s} }

// shapes are the document's named schemas. taskTypes are the types that can be submitted.
func shapes(taskTypes []string) schema {
	delivery := schema{
		fieldOrdered:  schema{"type": "boolean", "default": false, "description": "Run in the order of submission within the thread."},
		fieldPriority: schema{"type": "integer", "minimum": 1, "maximum": maxPriority, "default": 1, "description": "A note for consumers of the queue."},
		fieldDelay:    schema{"type": "integer", "minimum": 0, "maximum": maxDelaySeconds, "default": 0, "description": "Not in the ordered queue."},
	}
	statuses := []checkpoint.Status{checkpoint.Queued, checkpoint.Running, checkpoint.Retrying, checkpoint.Succeeded, checkpoint.Failed}
	view := schema{
		"task_id":       taskIDSchema,
		"task":          schema{"type": "string", "description": "The task's type; empty when the message could not be read."},
		"thread_id":     idSchema,
		"status":        schema{"type": "string", "enum": statuses},
		"step":          schema{"type": "string", "description": "The step that was finished or failed last."},
		"error":         orNull(ref("Failure")),
		"tokens":        ref("Tokens"),
		"trace_id":      schema{"type": "string", "description": "The AWS X-Ray trace that the task belongs to; empty when it is not known."},
		"submitted_at":  orNull(momentSchema),
		"updated_at":    orNull(momentSchema),
		"next_retry_at": orNull(momentSchema),
	}
	return schema{
		"Query": schema{
			"type": "object", "additionalProperties": false,
			"properties": merged(delivery, schema{
				task.FieldThread: merged(idSchema, schema{"description": "The conversation; a new one when left out."}),
				"question":       schema{"type": "string", "minLength": 1},
			}),
		},
		"TicketUpdate": schema{
			"type": "object", "additionalProperties": false, "required": []string{"status"},
			"properties": schema{"status": textSchema},
		},
		"TaskSubmission": schema{
			"type": "object", "required": []string{task.FieldTask},
			"properties": merged(delivery, schema{
				task.FieldTask:   schema{"type": "string", "enum": taskTypes},
				task.FieldThread: idSchema,
			}),
			"not":         schema{"required": []string{"task_id"}},
			"description": "The task's type, how it travels, and the type's own fields.",
		},
		"Accepted": record(schema{
			"task_id": taskIDSchema, "message_id": textSchema, "thread_id": idSchema, "status": schema{"const": checkpoint.Queued},
		}, ""),
		"Task": record(merged(view, schema{
			"attempts": merged(countSchema, schema{"description": "How many there were."}),
			"result":   merged(anything, schema{"description": "null until the task has succeeded; then any JSON, byte for byte as the task left it."}),
		}), "A task as it stands."),
		"History": record(schema{
			"thread_id": idSchema, "tasks": listOf(ref("TaskHistory")), "next_cursor": schema{"type": []string{"string", "null"}},
		}, "A page of tasks; next_cursor is null on the last one."),
		"TaskHistory": record(merged(view, schema{
			"attempts": listOf(ref("Attempt")), "steps": listOf(ref("Step")),
		}), "A task with its attempts and its finished steps, both oldest first."),
		"Attempt": record(schema{
			"attempt":    numberSchema,
			"started_at": orNull(momentSchema),
			"ended_at":   merged(orNull(momentSchema), schema{"description": "null while it runs, and when it was cut off."}),
			"step":       textSchema, "error": orNull(ref("Failure")),
		}, "One delivery of the task to a worker."),
		"Step":    record(schema{"step": textSchema, "n": merged(numberSchema, schema{"description": "The number of its checkpoint."})}, "A finished step."),
		"Failure": record(schema{"code": textSchema, "message": textSchema}, "Why something failed: a stable code and a sentence."),
		"Tokens":  record(schema{"input": countSchema, "output": countSchema}, "What models have read and written."),
		"Checkpoint": record(schema{
			"thread_id": idSchema, "n": numberSchema, "task_id": taskIDSchema, "task": textSchema, "step": textSchema, "attempt": countSchema,
			"duration_ms": countSchema, "tokens": ref("Tokens"), "updated_at": orNull(momentSchema), "data": anything,
			"state": record(schema{"turns": listOf(ref("Turn"))}, "The newest results up to here, oldest first."),
		}, "What a finished step left behind."),
		"Turn": record(schema{"n": numberSchema, "task_id": taskIDSchema, "task": textSchema, "data": anything}, "The result of one task."),
		"Ticket": record(schema{
			"ticket_id": ticketIDSchema, "status": textSchema, "version": numberSchema, "updated_at": orNull(momentSchema),
		}, ""),
		"Health": record(schema{"status": schema{"const": "ok"}}, ""),
		"Problem": record(schema{
			"type": textSchema, "title": textSchema, "status": schema{"type": "integer", "minimum": 400, "maximum": 599}, "detail": textSchema,
			"code": schema{"type": "string", "enum": codes},
			"errors": listOf(record(schema{
				"field": schema{"type": "string"}, "problem": textSchema,
			}, "A field that is wrong, and what is wrong with it.")),
		}, "A problem document (RFC 9457)."),
	}
}
