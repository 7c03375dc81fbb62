package httpapi

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// object writes a JSON object member by member. It exists for [object.raw]: an encoder that is handed a
// value of someone else's reformats it and limits its depth.
type object struct {
	buf bytes.Buffer
	err error
}

// add appends a member. The name needs no escapes.
func (o *object) add(name string, value any) *object {
	text, err := json.Marshal(value)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("encode %s: %w", name, err)
	}
	return o.raw(name, text)
}

// raw appends a member whose value goes out byte for byte; nil is null.
func (o *object) raw(name string, value jsontext.Value) *object {
	separator := byte(',')
	if o.buf.Len() == 0 {
		separator = '{'
	}
	o.buf.WriteByte(separator)
	o.buf.WriteString(`"` + name + `":`)
	if value == nil {
		value = jsontext.Value("null")
	}
	o.buf.Write(value)
	return o
}

// bytes is the object, of one member at least.
func (o *object) bytes() ([]byte, error) {
	o.buf.WriteByte('}')
	return o.buf.Bytes(), o.err
}

// list joins values byte for byte.
func list(values []jsontext.Value) jsontext.Value {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

// moment is a time as clients see it: RFC 3339 in UTC with milliseconds; null for the zero time.
func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
