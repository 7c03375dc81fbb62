// Package text takes questions and documents apart into words and sentences: Latin and other alphabetic
// scripts at their word boundaries, Chinese, Japanese and Korean in pairs of neighbouring characters.
package text

import (
	"slices"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Words are the alphabetic words of s in their order, case-folded, full-width forms made plain.
func Words(s string) []string {
	var words []string
	for _, run := range runs(s) {
		if !run.cjk {
			words = append(words, run.text)
		}
	}
	return words
}

// Terms are what s is found by, in order and with repetitions: its words without plural endings, and pairs of
// its CJK characters. Words that say nothing about the subject are left out.
func Terms(s string) []string {
	var terms []string
	for _, run := range runs(s) {
		switch {
		case run.cjk:
			terms = append(terms, pairs(run.text)...)
		case !stopWords[run.text]:
			terms = append(terms, singular(run.text))
		}
	}
	return terms
}

// Sentences cuts s by the rules of Unicode's Annex 29, which know 。 ？ and ！ as well. White space around the
// sentences is dropped.
func Sentences(s string) []string {
	var sentences []string
	for state := -1; s != ""; {
		var sentence string
		sentence, s, state = uniseg.FirstSentenceInString(s, state)
		if sentence = strings.TrimSpace(sentence); sentence != "" {
			sentences = append(sentences, sentence)
		}
	}
	return sentences
}

// HasCJK reports whether s holds a Chinese, Japanese or Korean character.
func HasCJK(s string) bool { return strings.ContainsFunc(s, isCJK) }

func isCJK(r rune) bool {
	if r < 0x1100 { // where Hangul begins, the first of them
		return false
	}
	// The mark of a long vowel belongs to both kana and therefore to no script.
	return r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// run is a stretch of letters and digits of one kind.
type run struct {
	text string
	cjk  bool
}

func runs(s string) []run {
	s = cases.Fold().String(norm.NFKC.String(s))
	s = function.Replace(s)
	var out []run
	start, cjk := -1, false
	end := func(i int) {
		if start >= 0 {
			out = append(out, run{s[start:i], cjk})
		}
		start = -1
	}
	for i, r := range s {
		switch {
		case !unicode.In(r, unicode.Letter, unicode.Digit, unicode.Mark) && r != '_':
			end(i)
		case start < 0 || isCJK(r) != cjk && !unicode.Is(unicode.Mark, r):
			end(i)
			start, cjk = i, isCJK(r)
		}
	}
	end(len(s))
	return out
}

func pairs(s string) []string {
	runes := []rune(s)
	if len(runes) == 1 {
		return []string{s}
	}
	var out []string
	for i := range len(runes) - 1 {
		out = append(out, string(runes[i:i+2]))
	}
	return out
}

// singular takes the plural's ending off an English word, roughly: what counts is that both forms give the
// same term.
func singular(w string) string {
	switch {
	case len(w) < 4 || !strings.HasSuffix(w, "s") || strings.HasSuffix(w, "ss") || strings.HasSuffix(w, "us"):
		return w
	case strings.HasSuffix(w, "ies"):
		return w[:len(w)-3] + "y"
	default:
		return w[:len(w)-1]
	}
}

// function takes Chinese function words out, leaving a gap, so that no pair of characters spans them. The
// longer ones come first: the replacer takes the first that fits.
var function = strings.NewReplacer(slices.Concat(
	gaps("有什么", "有哪些", "有没有", "为什么", "是什么", "什么是", "怎么样", "怎样", "怎么", "什么", "如何", "哪些", "哪个", "多少", "多久", "是不是", "是否"),
	gaps("请问", "可以", "能否", "我们", "它们", "这个", "那个", "那么", "还有", "以及", "一个", "应该", "应当"),
	gaps("是", "的", "了", "吗", "呢", "吧", "啊", "我", "你", "它", "这", "那"),
)...)

func gaps(words ...string) []string {
	var out []string
	for _, w := range words {
		out = append(out, w, " ")
	}
	return out
}

var stopWords = func() map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(`
		a about after all also am an and any are as at be been before big but by can could did do does doing done for from get
		give go had handle has have how i if in into is it its let like long make many may me mean more most much must my need no
		not of off on one only or other our out please same shall she he should so some such tell than that the their them
		then there these they this those to too up us use used using very was we were what when where which while who
		whom why will with work would you your s t re ve ll d explain describe happen happens works means`) {
		set[w] = true
	}
	return set
}()
