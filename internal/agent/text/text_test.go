package text_test

import (
	"slices"
	"testing"

	"agentworker/internal/agent/text"
)

func TestTerms(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []string
	}{
		"words without function words":      {"What is the visibility timeout?", []string{"visibility", "timeout"}},
		"plural and case":                   {"Queues RETRIES status class Lambdas", []string{"queue", "retry", "status", "class", "lambda"}},
		"hyphens split, underscores do not": {"dead-letter thread_id", []string{"dead", "letter", "thread_id"}},
		"words joined by marks":             {"config.Load it's arn:aws", []string{"config", "load", "arn", "aw"}},
		"repetitions stay":                  {"queue queue", []string{"queue", "queue"}},
		"Unicode case folding":              {"STRASSE straße", []string{"strasse", "strasse"}},
		"composed and decomposed":           {"\u00e9tat e\u0301tat", []string{"\u00e9tat", "\u00e9tat"}},
		"full-width letters":                {"ＬａｎｇＧｒａｐｈ", []string{"langgraph"}},
		"other alphabets":                   {"Очередь сообщений", []string{"очередь", "сообщений"}},
		"Chinese in pairs":                  {"死信队列", []string{"死信", "信队", "队列"}},
		"one character":                     {"锁", []string{"锁"}},
		"no pair across function words":     {"消息的顺序是什么", []string{"消息", "顺序"}},
		"question around a Latin name":      {"什么是 LangGraph？", []string{"langgraph"}},
		"scripts side by side":              {"SQS队列DLQ", []string{"sq", "队列", "dlq"}},
		"Japanese":                          {"キューとは", []string{"キュ", "ュー", "ーと", "とは"}},
		"nothing":                           {" ?!… 🙂\u200b", nil},
		"only function words":               {"and what about it?", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text.Terms(tt.in); !slices.Equal(got, tt.want) {
				t.Errorf("Terms(%q): got %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []string
	}{
		"English":         {"One. Two is 3.5 long!  Three?", []string{"One.", "Two is 3.5 long!", "Three?"}},
		"Chinese":         {"第一句。第二句！第三句？", []string{"第一句。", "第二句！", "第三句？"}},
		"both":            {"用 SQS。It works.", []string{"用 SQS。", "It works."}},
		"without an end":  {"no end", []string{"no end"}},
		"nothing but gap": {" \n ", nil},
		"a line break":    {"One\nTwo", []string{"One", "Two"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text.Sentences(tt.in); !slices.Equal(got, tt.want) {
				t.Errorf("Sentences(%q): got %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	if got, want := text.Words("And what's about ＦＩＦＯ，它呢?"), []string{"and", "what", "s", "about", "fifo"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
