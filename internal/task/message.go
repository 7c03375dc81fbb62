package task

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Message is what stands in a queue message's body: {"task":…,"task_id":…,"thread_id":…} and the fields
// of the task's type.
type Message struct {
	Task   string
	ID     ID
	Thread string
	Fields []Member // of the type, in the order in which they came
	// TraceID is the X-Ray trace of the request that submitted it; "": unknown. It is no part of the body.
	TraceID string
}

// Names of the body's members that every task has. The names of the message attributes are the same,
// but for the type's.
const (
	FieldTask   = "task"
	FieldTaskID = "task_id"
	FieldThread = "thread_id"

	AttributeTask     = "task_type"
	AttributeTaskID   = "task_id"
	AttributeThread   = "thread_id"
	AttributePriority = "priority" // a Number
)

// Body is the text to put on the queue. SQS refuses the characters U+FFFE and U+FFFF, which JSON allows
// in strings: they are written as escapes.
// Source: Amazon SQS Developer Guide, "Amazon SQS message quotas".
func (m Message) Body() ([]byte, error) {
	members := []Member{
		{FieldTask, quote(m.Task)},
		{FieldTaskID, quote(string(m.ID))},
		{FieldThread, quote(m.Thread)},
	}
	body, err := formatObject(append(members, m.Fields...))
	if err != nil {
		return nil, fmt.Errorf("encode task %s: %w", m.ID, err)
	}
	body = bytes.ReplaceAll(body, []byte("\uFFFE"), []byte(`\ufffe`))
	return bytes.ReplaceAll(body, []byte("\uFFFF"), []byte(`\uffff`)), nil
}

// fields are the members that the type's input is decoded from: its own and the thread's id.
func (m Message) fields() (jsontext.Value, error) {
	return formatObject(append([]Member{{FieldThread, quote(m.Thread)}}, m.Fields...))
}

// New makes the message of a task that a client submits. members are the type's fields and, where the
// client gave one, thread_id. The error is [FieldErrors].
func (r *Registry) New(taskType string, members []Member, at time.Time) (Message, error) {
	typ, ok := r.types[taskType]
	if !ok {
		return Message{}, FieldErrors{{FieldTask, fmt.Sprintf("must be one of %v", r.Names())}}
	}
	isID := func(m Member) bool { return m.Name == FieldTaskID }
	m, given, errs := read(slices.DeleteFunc(slices.Clone(members), isID))
	m.Task = taskType
	if slices.ContainsFunc(members, isID) {
		errs = append(errs, FieldError{FieldTaskID, "must not be given: it is made at submission"})
	}
	if m.Thread == Unparsed {
		errs = append(errs, FieldError{FieldThread, fmt.Sprintf("must not be %q, which is reserved", Unparsed)})
	}
	if err := typ.resolve(&m, given.thread); err != nil {
		var fields FieldErrors
		if !errors.As(err, &fields) {
			return Message{}, err
		}
		errs = append(errs, fields...)
	}
	if len(errs) > 0 {
		return Message{}, errs
	}
	if m.Thread == "" {
		m.Thread = NewThreadID(at)
	}
	m.ID = NewID(m.Thread, at)
	return m, nil
}

// Decode reads a message off the queue. messageID and sentAt are SQS's; they stand in for the task's id
// when another program sent the message without one. The returned message always has an ID and that
// id's thread, also beside an error, so that the failure can be recorded; what has no usable id of
// its own then lies in the thread [Unparsed], but for a message whose only fault is
// an unknown type: it lies in the thread that it names. Every error is permanent and has a code:
// [CodeMalformed], [CodeTopicNotAllowed], [CodeUnknownTask], [CodeInvalidField], or [CodePanic] when a function of the
// type panicked. Of an SNS notification it reads the message inside; see [Registry.AllowTopics].
func (r *Registry) Decode(body []byte, messageID string, sentAt time.Time) (Message, error) {
	lost := Message{ID: IDFromMessage(Unparsed, messageID, sentAt), Thread: Unparsed}
	members, err := ParseObject(body)
	if err != nil {
		return lost, Permanent(WithCode(CodeMalformed, fmt.Errorf("message body: %w", err)))
	}
	if n, wrapped := notificationOf(members); wrapped {
		if !r.topics[n.TopicARN] {
			return lost, Failf(CodeTopicNotAllowed, "the message is a notification of topic %q, which is not among the allowed ones", clip(n.TopicARN, 256))
		}
		messageID, sentAt = n.origin(messageID, sentAt)
		if members, err = ParseObject([]byte(n.Message)); err != nil {
			return lost, Permanent(WithCode(CodeMalformed, fmt.Errorf("message in the notification: %w", err)))
		}
	}
	m, given, errs := read(members)
	if m.Task == "" && !slices.ContainsFunc(errs, func(e FieldError) bool { return e.Field == FieldTask }) {
		errs = append(errs, FieldError{FieldTask, "must be a task type"})
	}
	if len(errs) > 0 {
		if m.ID == "" {
			m.ID = lost.ID
		}
		m.Thread = m.ID.Thread()
		return m, Permanent(WithCode(CodeInvalidField, errs))
	}
	typ, known := r.types[m.Task]
	if known {
		// A panic in a type's own functions must not cost the other messages of the batch.
		err = Guard(func() error { return typ.resolve(&m, given.thread) })
	}
	switch {
	case given.id:
		m.Thread = m.ID.Thread()
	case err != nil, !known && !given.thread:
		m.ID, m.Thread = lost.ID, lost.Thread
	default:
		if m.Thread == "" {
			// Of the message id alone: SQS changes the send time when it moves a message to a FIFO dead-letter
			// queue, and its record must be found from there as well.
			m.Thread = "th-" + IDFromMessage("", messageID, time.UnixMilli(0)).ULID()
		}
		m.ID = IDFromMessage(m.Thread, messageID, sentAt)
	}
	switch {
	case !known:
		return m, Permanent(WithCode(CodeUnknownTask, fmt.Errorf("task %q is not one of %v", clip(m.Task, 60), r.Names())))
	case errors.As(err, new(*PanicError)):
		return m, Permanent(err)
	case err != nil:
		return m, Permanent(WithCode(CodeInvalidField, err))
	}
	return m, nil
}

type present struct{ id, thread bool }

// read takes the members that every task has out of the others and checks them.
func read(members []Member) (m Message, given present, errs FieldErrors) {
	for _, member := range members {
		switch member.Name {
		case FieldTask:
			m.Task, _ = text(member, &errs)
		case FieldTaskID:
			s, ok := text(member, &errs)
			if !ok {
				continue
			}
			id, err := ParseID(s)
			if err != nil {
				errs = append(errs, FieldError{FieldTaskID, "is not one: " + err.Error()})
				continue
			}
			m.ID, given.id = id, true
		case FieldThread:
			s, ok := text(member, &errs)
			if !ok {
				continue
			}
			if err := CheckThreadID(s); err != nil {
				errs = append(errs, FieldError{FieldThread, err.Error()})
				continue
			}
			m.Thread, given.thread = s, true
		default:
			m.Fields = append(m.Fields, member)
		}
	}
	if given.id && given.thread && m.ID.Thread() != m.Thread {
		errs = append(errs, FieldError{FieldTaskID, "must begin with the thread_id"})
	}
	if given.id && !given.thread {
		m.Thread, given.thread = m.ID.Thread(), true
	}
	return m, given, errs
}

func text(m Member, errs *FieldErrors) (s string, ok bool) {
	if m.Value.Kind() != '"' || json.Unmarshal(m.Value, &s) != nil {
		*errs = append(*errs, FieldError{m.Name, "must be a string"})
		return "", false
	}
	return s, true
}

func quote(s string) jsontext.Value {
	// Quoting fails only on invalid UTF-8, which is replaced: ids are ASCII, and a type's name
	// comes out of JSON or the registry.
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}

// fieldErrors turns what a type's own check or decoding found into [FieldErrors].
func fieldErrors(err error) error {
	var fields FieldErrors
	if errors.As(err, &fields) {
		return fields
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		name := "body"
		if path := slices.Collect(semantic.JSONPointer.Tokens()); len(path) > 0 {
			name = path[len(path)-1]
		}
		return FieldErrors{{name, "must be " + describe(semantic)}}
	}
	return FieldErrors{{"body", "does not fit the task type"}}
}

// describe says what a field should have been, without quoting what it was.
func describe(err *json.SemanticError) string {
	if err.GoType == nil {
		return "of another type"
	}
	if err.GoType == reflect.TypeFor[time.Time]() {
		return "a time such as 2006-01-02T15:04:05Z"
	}
	switch kind := err.GoType.Kind(); kind {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a number in range (" + kind.String() + ")"
	default:
		return "of another type"
	}
}
