package command

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fatih/color"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattn/go-isatty"

	"agentworker/infra/agentctl/api"
	"agentworker/infra/agentctl/deployment"
)

// Streams are where a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer // the answer
	Err io.Writer // everything else: problems, progress, questions
	// InTerminal, OutTerminal and ErrTerminal say that a person is there. Without one nothing is asked, coloured or
	// animated.
	InTerminal, OutTerminal, ErrTerminal bool
	// NoColour takes the colours away on a terminal too.
	NoColour bool
}

// Standard are the process's own. NO_COLOR and TERM=dumb take the colours away, see https://no-color.org.
func Standard() Streams {
	terminal := func(f *os.File) bool { return isatty.IsTerminal(f.Fd()) }
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal: terminal(os.Stdin), OutTerminal: terminal(os.Stdout), ErrTerminal: terminal(os.Stderr),
		NoColour: os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb",
	}
}

// Session is one call of agentctl: what its flags say, and the deployment once it has been looked for. It is not safe
// for concurrent use.
type Session struct {
	Streams
	Stage, Region string
	Local, JSON   bool

	began  bool // a command is running: from here on no error is one of usage, unless it says so
	found  *deployment.Deployment
	client *api.Client
}

// Deployment finds the stack that the flags mean, once.
func (s *Session) Deployment(ctx context.Context) (*deployment.Deployment, error) {
	if s.found != nil {
		return s.found, nil
	}
	d, err := deployment.Find(ctx, deployment.Options{Stage: s.Stage, Region: s.Region, Local: s.Local})
	if err == nil {
		s.found = d
	}
	return d, err
}

// API is a client of the deployment's HTTP API.
func (s *Session) API(ctx context.Context) (*api.Client, error) {
	if s.client != nil {
		return s.client, nil
	}
	d, err := s.Deployment(ctx)
	if err != nil {
		return nil, err
	}
	s.client, err = api.New(d, api.Options{Token: token()})
	return s.client, err
}

// tokenVariable holds a bearer token, for an API that was deployed to take those. It is no flag: others on the machine
// see a program's arguments.
const tokenVariable = "AGENTWORKER_TOKEN"

func token() string { return os.Getenv(tokenVariable) }

// close drops the connections that are left open.
func (s *Session) close() {
	if s.client != nil {
		s.client.Close()
	}
	if s.found == nil {
		return
	}
	if c, ok := s.found.AWS.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Print writes v as JSON with --json, and otherwise has text write to a person.
func (s *Session) Print(v any, text func(w io.Writer)) error {
	if !s.JSON {
		out := bufio.NewWriter(s.Out)
		text(out)
		return out.Flush()
	}
	if err := json.MarshalWrite(s.Out, v, json.Deterministic(true), jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err := io.WriteString(s.Out, "\n")
	return err
}

// Note tells a person something beside the answer, a line at a time.
func (s *Session) Note(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Err, format+"\n", args...)
}

// Confirm asks a person a yes-or-no question. Without a person there is nobody to say yes, which is wrong usage: the
// error names the flag --yes.
func (s *Session) Confirm(ctx context.Context, question string) (bool, error) {
	if !s.InTerminal {
		return false, Usagef("nobody is there to be asked: say --yes to go ahead")
	}
	_, _ = fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the process: a read of a terminal cannot be broken off
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line == "y" || line == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Good colours a text of the answer green, if there are colours.
func (s *Session) Good(text string) string { return s.paint(text, color.FgGreen) }

// Bad is red.
func (s *Session) Bad(text string) string { return s.paint(text, color.FgRed) }

// Busy is yellow.
func (s *Session) Busy(text string) string { return s.paint(text, color.FgYellow) }

// Faint steps back.
func (s *Session) Faint(text string) string { return s.paint(text, color.Faint) }

func (s *Session) paint(text string, attribute color.Attribute) string {
	c := color.New(attribute)
	if s.OutTerminal && !s.NoColour && !s.JSON {
		c.EnableColor()
	} else {
		c.DisableColor()
	}
	return c.Sprint(text)
}
