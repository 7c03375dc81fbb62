package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/task"
)

// Task types that have calls of their own.
const (
	ragQuery     = "rag_query"
	updateTicket = "update_ticket"
)

// submission is a task as the client sent it.
type submission struct {
	task    string
	members []task.Member // the type's fields and thread_id, as they came
	delivery
}

// delivery is how the message travels. It is no part of the message's body.
type delivery struct {
	ordered      bool
	priority     int // 1 to 10, for whoever consumes the queue; nothing of ours goes by it
	delaySeconds int // 0 to 900, not in the ordered queue
}

const (
	fieldOrdered  = "ordered"
	fieldPriority = "priority"
	fieldDelay    = "delay_seconds"

	maxPriority = 10
	// maxDelaySeconds is Amazon SQS's. Source: Amazon SQS API Reference, "SendMessage".
	maxDelaySeconds = 900
)

// postQuery takes thread_id and question from the body or from the query string.
func (a *api) postQuery(ctx context.Context, c *call) (answer, error) {
	params, err := c.query(task.FieldThread, "question")
	if err != nil {
		return answer{}, err
	}
	members, err := c.object()
	if err != nil {
		return answer{}, err
	}
	if members == nil && len(params) == 0 {
		return answer{}, malformedJSON(`The body is missing: {"thread_id":…,"question":…}.`)
	}
	members, errs := onlyMembers(members, task.FieldThread, "question", fieldOrdered, fieldPriority, fieldDelay)
	s, wrong := takeDelivery(members)
	errs = append(errs, wrong...)
	for _, name := range []string{task.FieldThread, "question"} {
		value, given := params[name]
		if !given {
			continue
		}
		i := slices.IndexFunc(s.members, func(m task.Member) bool { return m.Name == name })
		if i >= 0 {
			var text string
			if json.Unmarshal(s.members[i].Value, &text) == nil && text != value {
				errs = append(errs, task.FieldError{Field: name, Problem: "must be the same in the body and in the query string"})
			}
			continue
		}
		quoted, err := quote(value)
		if err != nil {
			return answer{}, malformedQuery("The query string is not UTF-8.")
		}
		s.members = append(s.members, task.Member{Name: name, Value: quoted})
	}
	s.task = ragQuery
	return a.submit(ctx, c, s, errs)
}

// postTicket queues a ticket's update in the ticket's own order.
func (a *api) postTicket(ctx context.Context, c *call) (answer, error) {
	members, err := c.requiredObject(`{"status":…}`)
	if err != nil {
		return answer{}, err
	}
	members, errs := onlyMembers(members, "status")
	id, err := quote(c.PathValue("ticket_id"))
	if err != nil {
		return answer{}, task.FieldErrors{{Field: "ticket_id", Problem: "must be valid UTF-8"}}
	}
	s := submission{
		task:     updateTicket,
		members:  append([]task.Member{{Name: "ticket_id", Value: id}}, members...),
		delivery: delivery{priority: 1},
	}
	return a.submit(ctx, c, s, errs)
}

// postTask queues a task of any type.
func (a *api) postTask(ctx context.Context, c *call) (answer, error) {
	members, err := c.requiredObject(`{"task":…}`)
	if err != nil {
		return answer{}, err
	}
	s, errs := takeDelivery(members)
	i := slices.IndexFunc(s.members, func(m task.Member) bool { return m.Name == task.FieldTask })
	if i < 0 {
		return answer{}, append(errs, task.FieldError{Field: task.FieldTask, Problem: fmt.Sprintf("must be one of %v", a.Tasks.Names())})
	}
	if json.Unmarshal(s.members[i].Value, &s.task) != nil || s.members[i].Value.Kind() != '"' {
		return answer{}, append(errs, task.FieldError{Field: task.FieldTask, Problem: "must be a string"})
	}
	s.members = slices.Delete(s.members, i, i+1)
	return a.submit(ctx, c, s, errs)
}

// requiredObject is the body of a call that takes everything from it.
func (c *call) requiredObject(form string) ([]task.Member, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	members, err := c.object()
	if err == nil && members == nil {
		err = malformedJSON("The body is missing: " + form + ".")
	}
	return members, err
}

// takeDelivery takes the members that say how the message travels out of the others.
func takeDelivery(members []task.Member) (submission, task.FieldErrors) {
	s := submission{delivery: delivery{priority: 1}}
	var errs task.FieldErrors
	for _, m := range members {
		var problem string
		switch m.Name {
		case fieldOrdered:
			if kind := m.Value.Kind(); kind != 't' && kind != 'f' {
				problem = "must be true or false"
			}
			s.ordered = m.Value.Kind() == 't'
		case fieldPriority:
			s.priority, problem = wholeNumber(string(m.Value), 1, maxPriority)
		case fieldDelay:
			s.delaySeconds, problem = wholeNumber(string(m.Value), 0, maxDelaySeconds)
		default:
			s.members = append(s.members, m)
		}
		if problem != "" {
			errs = append(errs, task.FieldError{Field: m.Name, Problem: problem})
		}
	}
	return s, errs
}

func wholeNumber(text string, low, high int) (n int, problem string) {
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return low, fmt.Sprintf("must be a whole number from %d to %d", low, high)
	}
	return n, ""
}

// check makes the message, or says everything that is wrong with the submission: errs is what is known
// already.
func (a *api) check(s *submission, at time.Time, errs task.FieldErrors) (task.Message, error) {
	if typ, known := a.Tasks.Lookup(s.task); known {
		s.ordered = s.ordered || typ.Ordered
	}
	if s.ordered && s.delaySeconds > 0 {
		errs = append(errs, task.FieldError{
			Field: fieldDelay, Problem: "must be 0 or left out: the ordered queue delays no single message",
		})
	}
	m, err := a.Tasks.New(s.task, s.members, at)
	members := s.members
	// The registry stops at the first kind of fault. What it names is left out and the rest checked
	// again, until it names nothing new.
	for err != nil {
		found, ok := err.(task.FieldErrors) //nolint:errorlint // New documents exactly this type
		if !ok {
			return task.Message{}, err
		}
		before := len(errs)
		for _, f := range found {
			if !slices.ContainsFunc(errs, func(e task.FieldError) bool { return e.Field == f.Field }) {
				errs = append(errs, f)
			}
		}
		rest := slices.DeleteFunc(slices.Clone(members), func(m task.Member) bool {
			return slices.ContainsFunc(found, func(f task.FieldError) bool { return f.Field == m.Name })
		})
		if len(errs) == before || len(rest) == len(members) {
			break
		}
		members = rest
		_, err = a.Tasks.New(s.task, members, at)
	}
	if len(errs) > 0 {
		return task.Message{}, errs
	}
	return m, nil
}

// fingerprint is the same for submissions that mean the same: neither the order of members, nor blanks,
// nor escapes in strings matter. Numbers are compared as they are written, since no other form keeps
// every digit.
func (s submission) fingerprint() (string, error) {
	members := slices.Clone(s.members)
	for i, m := range members {
		members[i].Value = m.Value.Clone()
		if err := members[i].Value.Format(jsontext.ReorderRawObjects(true)); err != nil {
			return "", fmt.Errorf("normalise %s: %w", m.Name, err)
		}
	}
	slices.SortFunc(members, func(a, b task.Member) int { return strings.Compare(a.Name, b.Name) })
	parts := []string{s.task, strconv.FormatBool(s.ordered), strconv.Itoa(s.priority), strconv.Itoa(s.delaySeconds)}
	for _, m := range members {
		parts = append(parts, m.Name, string(m.Value))
	}
	return hash(parts...), nil
}

// hash is a digest of all parts that no other division into parts shares.
func hash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part + ","))
	}
	return hex.EncodeToString(h.Sum(nil))
}
