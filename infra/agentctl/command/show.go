package command

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/infra/agentctl/api"
)

// printable takes out what would steer a terminal: texts of tasks and models come from strangers.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// oneLine is printable on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(printable(text)), " ") }

func (s *Session) status(status string) string {
	switch status {
	case api.Succeeded:
		return s.Good(status)
	case api.Failed:
		return s.Bad(status)
	}
	return s.Busy(oneLine(status))
}

// moment is a time for a person, in UTC as in logs.
func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

func failure(f *api.Failure) string {
	if f == nil {
		return ""
	}
	return oneLine(f.Code + ": " + f.Message)
}

// pairs writes names and values in two columns, leaving out what is empty.
func pairs(w io.Writer, namesAndValues ...string) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		if value := namesAndValues[i+1]; value != "" {
			_, _ = fmt.Fprintf(table, "%s\t%s\n", namesAndValues[i], value)
		}
	}
	_ = table.Flush() // the writer below it tells
}

// showTask writes a task for a person.
func (s *Session) showTask(w io.Writer, t api.Task) {
	next := ""
	if t.NextRetryAt != nil {
		next = moment(t.NextRetryAt)
	}
	tokens := ""
	if t.Tokens != (api.Tokens{}) {
		tokens = fmt.Sprintf("%d read, %d written", t.Tokens.Input, t.Tokens.Output)
	}
	pairs(w,
		"task", oneLine(t.TaskID), "type", oneLine(t.Type), "status", s.status(t.Status),
		"error", s.paintIf(failure(t.Error), s.Bad), "step", oneLine(t.Step), "attempts", fmt.Sprint(t.Attempts), "tokens", tokens,
		"submitted", moment(t.SubmittedAt), "updated", moment(t.UpdatedAt), "next try", next)
	if len(t.Result) > 0 && t.Result.Kind() != 'n' {
		_, _ = fmt.Fprintln(w)
		showResult(w, t.Result)
	}
}

func (s *Session) paintIf(text string, paint func(string) string) string {
	if text == "" {
		return ""
	}
	return paint(text)
}

// showResult writes an answer as text with its sources, and any other result as JSON.
func showResult(w io.Writer, result jsontext.Value) {
	var answer struct {
		Answer    string `json:"answer"`
		Citations []struct {
			Document string `json:"document"`
		} `json:"citations"`
	}
	if json.Unmarshal(result, &answer) == nil && answer.Answer != "" {
		_, _ = fmt.Fprintln(w, printable(answer.Answer))
		for i, c := range answer.Citations {
			_, _ = fmt.Fprintf(w, "  [%d] %s\n", i+1, oneLine(c.Document))
		}
		return
	}
	text := result.Clone()
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		text = result
	}
	_, _ = fmt.Fprintln(w, printable(string(text)))
}
