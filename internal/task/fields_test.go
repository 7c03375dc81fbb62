package task_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/task"
)

func TestParseObject(t *testing.T) {
	t.Parallel()
	got, err := task.ParseObject([]byte(` {"b" : 1e400, "a":{"x": [null]},"":"\u0041"} `))
	want := []task.Member{
		{Name: "b", Value: []byte(`1e400`)}, {Name: "a", Value: []byte(`{"x": [null]}`)}, {Name: "", Value: []byte(`"\u0041"`)},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got %v (-want +got):\n%s", err, diff)
	}
	for text, offset := range map[string]int64{
		``: 0, `hello`: 0, ` x`: 1, `{`: 1, `{"a":1`: 6, `{"a":1,}`: 6, `{"a":1} x`: 7, `1 2`: 1, `{"a":1}{}`: 7,
		`{"a":"` + "\xff" + `"}`: 6, `{"abc":1,"abc":2}`: 9, `{"a":[1,2,tru]}`: 13, `{a:1}`: 1,
	} {
		_, err := task.ParseObject([]byte(text))
		var syntax *task.SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != offset {
			t.Errorf("%q: got %v, want it not to be JSON from byte %d on", text, err, offset)
		}
	}
	for _, text := range []string{`null`, `1`, `"x"`, `[]`, ` true `} {
		if _, err := task.ParseObject([]byte(text)); !errors.Is(err, task.ErrNotObject) {
			t.Errorf("%s: got %v, want %v", text, err, task.ErrNotObject)
		}
	}
}
