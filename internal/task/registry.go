// Package task says what a task is: its id and message, the types that can be run, how a handler's steps
// are written down, and what the error that it returns means for the next attempt.
package task

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Definition declares a task type. In is decoded from the message's fields (names are case-sensitive,
// unknown ones are ignored); Out is the task's result.
type Definition[In, Out any] struct {
	// Name stands in the message's "task": lower case with underscores.
	Name string
	// Ordered tasks always go to the ordered (FIFO) queue, where their thread is the message group. Others
	// go there when the client asks for it.
	Ordered bool
	// Check says which fields are wrong; nil accepts whatever decodes. It is called at submission and
	// again by the worker, since others can put messages on the queue as well.
	Check func(In) FieldErrors
	// Thread derives the thread from the input; nil: the client's thread_id, or a new thread. It is called with
	// what Check accepts and must give a valid thread id.
	Thread func(In) string
	// Run does the work. See [Step] for how its progress survives a crash, [Permanent] and
	// [RetryAfter] for what its error means. Its output is the result when no step was the last one.
	Run func(ctx context.Context, run Run, in In) (Out, error)
}

// Type is the untyped form of a [Definition].
type Type struct {
	Name    string
	Ordered bool

	resolve func(m *Message, threadGiven bool) error
	run     func(ctx context.Context, run Run, m Message) (jsontext.Value, error)
}

// Type makes the form that a [Registry] takes.
func (d Definition[In, Out]) Type() Type {
	decode := func(m Message) (In, error) {
		var in In
		fields, err := m.fields()
		if err != nil {
			return in, err
		}
		if err := json.Unmarshal(fields, &in); err != nil {
			return in, fieldErrors(err)
		}
		if d.Check != nil {
			if errs := d.Check(in); len(errs) > 0 {
				return in, errs
			}
		}
		return in, nil
	}
	return Type{
		Name:    d.Name,
		Ordered: d.Ordered,
		resolve: func(m *Message, threadGiven bool) error {
			in, err := decode(*m)
			if err != nil {
				return err
			}
			if d.Thread == nil {
				return nil
			}
			thread := d.Thread(in)
			if err := CheckThreadID(thread); err != nil {
				return FieldErrors{{FieldThread, "follows from the other fields and " + err.Error()}}
			}
			if threadGiven && m.Thread != thread {
				return FieldErrors{{FieldThread, fmt.Sprintf("must be %q or left out for a task of this type", thread)}}
			}
			m.Thread = thread
			return nil
		},
		run: func(ctx context.Context, run Run, m Message) (jsontext.Value, error) {
			in, err := decode(m)
			if err != nil {
				return nil, Permanent(WithCode(CodeInvalidField, err))
			}
			out, err := d.Run(ctx, run, in)
			if err != nil {
				return nil, err
			}
			return marshal(out)
		},
	}
}

// Run calls the type's handler with the message's fields.
func (t Type) Run(ctx context.Context, run Run, m Message) (jsontext.Value, error) {
	return t.run(ctx, run, m)
}

// Registry is the list of task types. It is immutable and safe for concurrent use.
type Registry struct {
	types  map[string]Type
	topics map[string]bool // ARNs whose notifications are unwrapped
}

// NewRegistry refuses two types of one name.
func NewRegistry(types ...Type) (*Registry, error) {
	r := &Registry{types: make(map[string]Type, len(types))}
	for _, t := range types {
		if t.Name == "" || t.run == nil {
			return nil, fmt.Errorf("a task type needs a name and a handler")
		}
		if _, twice := r.types[t.Name]; twice {
			return nil, fmt.Errorf("task type %q is registered twice", t.Name)
		}
		r.types[t.Name] = t
	}
	return r, nil
}

// Lookup finds a type by name.
func (r *Registry) Lookup(name string) (Type, bool) {
	t, ok := r.types[name]
	return t, ok
}

// Names lists the types in alphabetical order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.types)) }
