package task_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentworker/internal/task"
)

func TestBodyIsTheMessagesForm(t *testing.T) {
	t.Parallel()
	m := task.Message{Task: "rag_query", ID: "th-1." + ulidA, Thread: "th-1", Fields: []task.Member{
		{Name: "question", Value: jsontext.Value(`"什么是 LangGraph？"`)},
	}}
	got, err := m.Body()
	want := `{"task":"rag_query","task_id":"th-1.` + ulidA + `","thread_id":"th-1","question":"什么是 LangGraph？"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	for what, field := range map[string]task.Member{
		"a name twice": {Name: task.FieldTask, Value: jsontext.Value(`"x"`)},
		"no value":     {Name: "x", Value: nil},
		"no JSON":      {Name: "x", Value: jsontext.Value(`{`)},
		"two values":   {Name: "x", Value: jsontext.Value(`1,"y":2`)},
	} {
		m.Fields = []task.Member{field}
		if got, err := m.Body(); err == nil {
			t.Errorf("%s: got %s and no error", what, got)
		}
	}
}

// Values go through the queue byte for byte; what SQS does not take goes through as an escape.
func TestValuesSurviveTheQueue(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ value, want string }{
		"beyond a double's integers": {`9007199254740993`, ""},
		"beyond int64":               {`123456789012345678901234567890`, ""},
		"beyond a double":            {`1e400`, ""},
		"minus zero":                 {`-0.0`, ""},
		"minus integer zero":         {`-0`, ""},
		"exponent as written":        {`1E+2`, ""},
		"trailing zeros":             {`1.500`, ""},
		"null":                       {`null`, ""},
		"empty list":                 {`[]`, ""},
		"empty object":               {`{}`, ""},
		"nested":                     {`{"z":{"a":[1e400,{"b":[[],{},null,-0.0]}]},"a":0}`, ""},
		"emoji":                      {`"👩‍👩‍👧‍👦 🏳️‍🌈"`, ""},
		"right to left":              {`"\u202eשלום\u202c مرحبا"`, ""},
		"HTML":                       {`"<script>&amp;</script>"`, ""},
		"line separators":            {"\"\u2028\u2029\"", ""},
		"NUL":                        {`"\u0000"`, ""},
		"control characters":         {`"\b\f\n\r\t\u001f` + "\x7f\u0085" + `"`, ""},
		"needless escapes":           {`"\u0041\/\u003c\u00e9\ud83d\ude00"`, ""},
		"upper-case escapes":         {`"\uABCD\u00E9"`, ""},
		"escaped U+FFFE":             {`"\ufffe\uFFFF"`, ""},
		"U+FFFE":                     {"\"a\uFFFEb\uFFFF\uFFFE\"", `"a\ufffeb\uffff\ufffe"`},
		"U+FFFE behind a backslash":  {"\"\\\\\uFFFE\"", `"\\\ufffe"`},
		"U+FFFE in a name":           {"{\"\uFFFF\":[\"\uFFFE\"]}", `{"\uffff":["\ufffe"]}`},
		"neighbours of U+FFFE":       {"\"\uFFFD\U00010000\U0001FFFE\U0010FFFF\uD7FF\uE000\"", ""},
		"replacement character":      {"\"\uFFFD\"", ""},
		"white space between tokens": {"[ 1,\n\t2 ]", `[1,2]`},
		"white space inside text":    {"\"  a  b  \"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.want == "" {
				tt.want = tt.value
			}
			r := newRegistry(t)
			sent, err := r.New("any", members(t, `{"value":`+tt.value+`}`), noon)
			if err != nil {
				t.Fatal(err)
			}
			body, err := sent.Body()
			if err != nil {
				t.Fatal(err)
			}
			if c, bad := outsideSQS(body); bad {
				t.Errorf("the body has the character %U, which SQS does not take: %q", c, body)
			}
			received, err := r.Decode(body, messageID, noon)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(received.Fields[0].Value); got != tt.want {
				t.Errorf("received: got %s, want %s", got, tt.want)
			}

			// The same holds for what the handler is given, and for what it gives.
			typ, _ := r.Lookup("any")
			out, err := typ.Run(t.Context(), nil, received)
			if want := `{"value":` + tt.want + `}`; err != nil || string(out) != want {
				t.Errorf("handler's output: got %s, %v, want %s", out, err, want)
			}
		})
	}
}

// outsideSQS finds a character that SQS does not take in a message.
// Source: Amazon SQS Developer Guide, "Amazon SQS message quotas".
func outsideSQS(body []byte) (rune, bool) {
	for _, c := range string(body) {
		switch {
		case c == 0x9, c == 0xA, c == 0xD, c >= 0x20 && c <= 0xD7FF, c >= 0xE000 && c <= 0xFFFD, c >= 0x10000:
		default:
			return c, true
		}
	}
	return 0, false
}

// anyJSON draws JSON without white space, with strings in every notation.
func anyJSON(depth int) *rapid.Generator[string] {
	character := rapid.OneOf(
		rapid.Map(rapid.Rune(), func(c rune) string {
			quoted, err := jsontext.AppendQuote(nil, string(c))
			if err != nil {
				return "?"
			}
			return string(quoted[1 : len(quoted)-1])
		}),
		rapid.SampledFrom([]string{`\u0041`, `\uFFFE`, `\uffff`, "\uFFFE", "\uFFFF", "\uFFFD", `\\`, `\"`, `\/`, `\n`, `\ud83d\ude00`, "<", "&", "\u2028", "题", "😀", "\u202e"}),
	)
	text := rapid.Map(rapid.SliceOfN(character, 0, 6), func(list []string) string { return `"` + strings.Join(list, "") + `"` })
	leaf := rapid.OneOf(
		text,
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?`),
		rapid.SampledFrom([]string{`null`, `true`, `false`, `[]`, `{}`, `-0.0`, `1e400`, `9007199254740993`}),
	)
	if depth == 0 {
		return leaf
	}
	inner := rapid.Deferred(func() *rapid.Generator[string] { return anyJSON(depth - 1) })
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(list []string) string { return "[" + strings.Join(list, ",") + "]" }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z"题]{0,3}`), inner, 0, 3), func(object map[string]string) string {
			var parts []string
			for name, value := range object {
				quoted, _ := jsontext.AppendQuote(nil, name)
				parts = append(parts, string(quoted)+":"+value)
			}
			return "{" + strings.Join(parts, ",") + "}"
		}),
	)
}

func TestDecodeIsTheInverseOfBody(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	rapid.Check(t, func(t *rapid.T) {
		thread := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.:@=+-]{0,99}`).Draw(t, "thread")
		sent := task.Message{Task: "any", ID: task.NewID(thread, noon), Thread: thread}
		names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.String(), rapid.Just("value")), 0, 5, rapid.ID[string]).Draw(t, "names")
		for _, name := range names {
			if name == task.FieldTask || name == task.FieldTaskID || name == task.FieldThread || !utf8.ValidString(name) {
				continue
			}
			value := anyJSON(2).Draw(t, "value")
			sent.Fields = append(sent.Fields, task.Member{Name: name, Value: jsontext.Value(value)})
		}
		body, err := sent.Body()
		if err != nil {
			t.Fatal(err)
		}
		if c, bad := outsideSQS(body); bad {
			t.Errorf("the body has the character %U, which SQS does not take: %q", c, body)
		}
		got, err := r.Decode(body, messageID, noon)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for i, f := range sent.Fields {
			sent.Fields[i].Value = escaped(f.Value)
		}
		if diff := cmp.Diff(sent, got); diff != "" {
			t.Errorf("%s\n(-sent +received):\n%s", body, diff)
		}
		if again, err := got.Body(); err != nil || string(again) != string(body) {
			t.Errorf("sent on: got %s, %v, want %s", again, err, body)
		}
	})
}

// escaped is v with the characters that SQS does not take as escapes.
func escaped(v jsontext.Value) jsontext.Value {
	return jsontext.Value(strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`).Replace(string(v)))
}

// A message of the largest size goes through in one piece.
func TestLargeMessage(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]rune, 300_000)
	for i := range text {
		text[i] = rune(0x4E00 + random.IntN(0x5000))
	}
	value, err := json.Marshal(string(text))
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t)
	sent, err := r.New("any", []task.Member{{Name: "value", Value: value}}, noon)
	if err != nil {
		t.Fatal(err)
	}
	body, err := sent.Body()
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Decode(body, messageID, noon)
	if err != nil || string(got.Fields[0].Value) != string(value) {
		t.Errorf("got %d bytes, %v, want the %d that were sent", len(got.Fields[0].Value), err, len(value))
	}
}
