package task

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// FieldError says what is wrong with one field of a task.
type FieldError struct {
	Field   string // as in JSON, for example "thread_id"
	Problem string // follows the field's name in a sentence: "must not be empty"
}

// FieldErrors is every field that is wrong, never empty.
type FieldErrors []FieldError

func (e FieldErrors) Error() string {
	parts := make([]string, len(e))
	for i, f := range e {
		parts[i] = f.Field + " " + f.Problem
	}
	return strings.Join(parts, "; ")
}

// Member is one name and value of a JSON object.
type Member struct {
	Name  string
	Value jsontext.Value
}

// ErrNotObject says that the text is valid JSON, but not an object.
var ErrNotObject = errors.New("must be a JSON object")

// SyntaxError says where text stops being JSON. It quotes nothing of the text.
type SyntaxError struct{ Offset int64 }

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("is not valid JSON at byte %d (names must be unique, text must be valid UTF-8, at most 10,000 levels may be nested)", e.Offset)
}

// ParseObject splits a JSON object into its members, in their order, each value byte for byte. Names are
// case-sensitive and unique. Its errors are [ErrNotObject] and [SyntaxError].
func ParseObject(text []byte) ([]Member, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	if dec.PeekKind() != '{' {
		_, err := dec.ReadValue()
		if err == nil && atEnd(dec) {
			return nil, ErrNotObject
		}
		return nil, syntaxError(dec, err)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, syntaxError(dec, err)
	}
	var members []Member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxError(dec, err)
		}
		m := Member{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, syntaxError(dec, err)
		}
		m.Value = value.Clone()
		members = append(members, m)
	}
	if _, err := dec.ReadToken(); err != nil || !atEnd(dec) {
		return nil, syntaxError(dec, err)
	}
	return members, nil
}

func atEnd(dec *jsontext.Decoder) bool {
	if dec.PeekKind() != 0 {
		return false
	}
	_, err := dec.ReadToken()
	return errors.Is(err, io.EOF)
}

func syntaxError(dec *jsontext.Decoder, err error) error {
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return &SyntaxError{Offset: syntactic.ByteOffset}
	}
	return &SyntaxError{Offset: dec.InputOffset()} // the text ends too early, or goes on
}

// formatObject is the inverse of [ParseObject]. Only white space between tokens is lost.
func formatObject(members []Member) (jsontext.Value, error) {
	var buf bytes.Buffer
	enc := jsontext.NewEncoder(&buf, jsontext.PreserveRawStrings(true))
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return nil, err
	}
	for _, m := range members {
		if err := enc.WriteToken(jsontext.String(m.Name)); err != nil {
			return nil, err
		}
		if err := enc.WriteValue(m.Value); err != nil {
			return nil, err
		}
	}
	if err := enc.WriteToken(jsontext.EndObject); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}
