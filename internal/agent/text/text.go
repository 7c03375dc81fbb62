// Package text takes questions and documents apart into words and sentences: Latin and other alphabetic
// scripts at their word boundaries, Chinese and Japanese in pairs of neighbouring characters.
package text

import (
	"strings"
	"unicode"

	"github.com/blevesearch/bleve/v2/analysis"
	tokenizer "github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"github.com/rivo/uniseg"
)

// Words are the alphabetic words of s in their order, case-folded, full-width forms made plain.
func Words(s string) []string {
	var words []string
	for _, token := range tokenizer.NewUnicodeTokenizer().Tokenize([]byte(plain(s))) {
		if token.Type != analysis.Ideographic {
			words = append(words, string(token.Term))
		}
	}
	return words
}

// Terms are what s is found by, in order and with repetitions: its words without plural endings, and pairs of
// its CJK characters. Words that say nothing about the subject are left out.
func Terms(s string) []string {
	var terms []string
	for _, token := range Analyzer().Analyze([]byte(s)) {
		terms = append(terms, string(token.Term))
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
