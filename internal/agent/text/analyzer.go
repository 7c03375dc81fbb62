package text

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/lang/cjk"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/analysis/token/stop"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Analyzer takes text apart for a bleve index as [Terms] does. It is made at the first call, and safe for concurrent use.
var Analyzer = sync.OnceValue(func() analysis.Analyzer {
	words := analysis.NewTokenMap()
	for w := range strings.FieldsSeq(stopWords) {
		words.AddToken(w)
	}
	return &analysis.DefaultAnalyzer{
		CharFilters: []analysis.CharFilter{charFilter(plain)},
		Tokenizer:   unicode.NewUnicodeTokenizer(),
		TokenFilters: []analysis.TokenFilter{
			stop.NewStopTokensFilter(words),
			en.NewEnglishPluralStemmerFilter(),
			cjk.NewCJKBigramFilter(false),
		},
	}
})

type charFilter func(string) string

// Filter implements [analysis.CharFilter].
func (f charFilter) Filter(b []byte) []byte { return []byte(f(string(b))) }

// plain folds case and width, and leaves gaps where words end that Unicode's rules would join.
func plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return gaps().Replace(strings.ToLower(s))
	}
	return gaps().Replace(cases.Fold().String(norm.NFKC.String(s)))
}

// gaps takes Chinese function words out, so that no pair of characters spans them. The longer ones come first: the replacer
// takes the first that fits. It also parts "config.load" and "it's".
var gaps = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for w := range strings.FieldsSeq(`
		有什么 有哪些 有没有 为什么 是什么 什么是 怎么样 怎样 怎么 什么 如何 哪些 哪个 多少 多久 是不是 是否
		请问 可以 能否 我们 它们 这个 那个 那么 还有 以及 一个 应该 应当
		是 的 了 吗 呢 吧 啊 我 你 它 这 那
		. : ' ’`) {
		pairs = append(pairs, w, " ")
	}
	return strings.NewReplacer(slices.Clip(pairs)...)
})

// stopWords say nothing about a subject. What is left of contractions is among them.
const stopWords = `
	a about after all also am an and any are as at be been before big but by can could did do does doing done for from get
	give go had handle has have how i if in into is it its let like long make many may me mean more most much must my need no
	not of off on one only or other our out please same shall she he should so some such tell than that the their them
	then there these they this those to too up us use used using very was we were what when where which while who
	whom why will with work would you your s t re ve ll d explain describe happen happens works means`
