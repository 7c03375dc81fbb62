package control

import (
	"fmt"
	"math"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A call of CloudWatch comes in CBOR from the Go SDK and in JSON from the AWS CLI. Both are read into and written from the
// same tree of CBOR values.

// epoch is CBOR's tag of a time in seconds since 1970. Source: RFC 8949, section 3.4.2.
const epoch = 1

func timeValue(t time.Time) cbor.Value {
	return &cbor.Tag{ID: epoch, Value: cbor.Float64(float64(t.UnixMilli()) / 1000)}
}

func stringList(values []string) cbor.List {
	list := cbor.List{}
	for _, v := range values {
		list = append(list, cbor.String(v))
	}
	return list
}

// textOf is the string of that name, "" when there is none.
func textOf(m cbor.Map, name string) string {
	s, _ := m[name].(cbor.String)
	return string(s)
}

// textsOf is the list of strings of that name; ok is false when it is not set.
func textsOf(m cbor.Map, name string) (texts []string, ok bool) {
	list, ok := m[name].(cbor.List)
	for _, v := range list {
		s, _ := v.(cbor.String)
		texts = append(texts, string(s))
	}
	return texts, ok
}

// toJSON writes a tree as JSON: times as numbers, as the AWS JSON protocol has them.
func toJSON(v cbor.Value) any {
	switch v := v.(type) {
	case cbor.Map:
		object := map[string]any{}
		for name, value := range v {
			object[name] = toJSON(value)
		}
		return object
	case cbor.List:
		list := make([]any, len(v))
		for i, value := range v {
			list[i] = toJSON(value)
		}
		return list
	case *cbor.Tag:
		return toJSON(v.Value)
	case cbor.String:
		return string(v)
	case cbor.Bool:
		return bool(v)
	case cbor.Uint:
		return uint64(v)
	case cbor.Float64:
		return float64(v)
	}
	return nil
}

// fromJSON reads a request of the AWS JSON protocol.
func fromJSON(text []byte) (cbor.Map, error) {
	if len(text) == 0 {
		return cbor.Map{}, nil
	}
	var object map[string]jsontext.Value
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	tree := cbor.Map{}
	for name, raw := range object {
		v, err := valueOf(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tree[name] = v
	}
	return tree, nil
}

func valueOf(raw jsontext.Value) (cbor.Value, error) {
	switch raw.Kind() {
	case '{':
		return fromJSON(raw)
	case '[':
		var items []jsontext.Value
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
		list := cbor.List{}
		for _, item := range items {
			v, err := valueOf(item)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return cbor.String(s), err
	case '0':
		var f float64
		if err := json.Unmarshal(raw, &f); err != nil || f < 0 || f != math.Trunc(f) {
			return cbor.Float64(f), err
		}
		return cbor.Uint(f), nil
	case 't', 'f':
		return cbor.Bool(raw.Kind() == 't'), nil
	}
	return &cbor.Nil{}, nil
}
