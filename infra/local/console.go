package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/lmittmann/tint"

	"agentworker/internal/emulator"
	"agentworker/internal/emulator/chaos"
	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
	"agentworker/internal/emulator/sns"
	"agentworker/internal/task"
)

// console is the terminal of the person who runs the chain: one readable line an event.
type console struct {
	handler slog.Handler
	out     io.Writer
}

func newConsole(file *os.File) *console {
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	out := &lockedWriter{w: file}
	return &console{out: out, handler: tint.NewTextHandler(out, &tint.Options{
		TimeFormat: "15:04:05.000", NoColor: !terminal || os.Getenv("NO_COLOR") != "",
	})}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (c *console) print(text string) {
	_, _ = fmt.Fprintln(c.out, text) // a terminal that is gone hears nothing more
}

// line shows a line of a function's log. Metrics and the platform's own records are left out, but for those that tell
// of a failure.
func (c *console) line(l lambda.Line) {
	record := slog.NewRecord(l.Time, slog.LevelInfo, l.Text, 0)
	switch {
	case l.Stream == lambda.Platform:
		if !strings.Contains(l.Text, "Status: ") && !strings.Contains(l.Text, "timed out") {
			return
		}
		record.Level = slog.LevelError
	case strings.HasPrefix(l.Text, "{"):
		members, err := task.ParseObject([]byte(l.Text))
		if err != nil {
			break
		}
		if isMetric(members) {
			return
		}
		record = logRecord(l.Time, members)
	}
	record.Message = fmt.Sprintf("%-8s %s", l.Function, record.Message)
	if c.handler.Enabled(context.Background(), record.Level) {
		_ = c.handler.Handle(context.Background(), record) // nowhere to report it
	}
}

func isMetric(members []task.Member) bool {
	for _, m := range members {
		if m.Name == "_aws" {
			return true
		}
	}
	return false
}

// logRecord takes a line of Lambda's JSON log format apart.
func logRecord(at time.Time, members []task.Member) slog.Record {
	record := slog.NewRecord(at, slog.LevelInfo, "", 0)
	for _, m := range members {
		var text string
		if json.Unmarshal(m.Value, &text) != nil {
			text = m.Value.String()
		}
		switch m.Name {
		case "message":
			record.Message = text
		case "level":
			_ = record.Level.UnmarshalText([]byte(text)) // stays INFO
		case "timestamp", "requestId":
		default:
			if kind := m.Value.Kind(); kind != '"' || text != "" {
				record.AddAttrs(slog.String(m.Name, text))
			}
		}
	}
	return record
}

// injection shows a fault that was made on purpose.
func (c *console) injection(i chaos.Injection) {
	attrs := []any{"during", i.What}
	for _, a := range []slog.Attr{slog.String("process", i.Process), slog.String("task_id", i.Task)} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	slog.New(c.handler).Warn(fmt.Sprintf("%-8s %s", "chaos", i.Kind), attrs...)
}

// notification shows what dlqalarm publishes, as the mail that people get from the topic.
func (c *console) notification(n sns.Notification) {
	rule := strings.Repeat("─", 78)
	c.print(fmt.Sprintf("%s\nALARM  %s\n\n%s\n%s", rule, n.Subject, strings.TrimRight(n.Message, "\n"), rule))
}

func welcome(chain *emulator.Chain, s settings, took time.Duration) string {
	state := "in memory: it ends with this process (set DATA_DIR to keep it)"
	if s.DataDir != "" {
		state = "in " + s.DataDir
	}
	return strings.NewReplacer("{api}", chain.APIURL(), "{aws}", chain.AWSURL(), "{state}", state, "{took}", took.Round(time.Millisecond).String(), "{workers}", fmt.Sprint(s.Workers)).Replace(`
Ready after {took}.
  HTTP API   {api}
  Page       {api}/   (ask, watch, see why something failed)
  AWS APIs   {aws}   (SQS, DynamoDB, SNS, Lambda; any credentials)
  Workers    {workers}
  State      {state}

Try it:
  curl -s {api}/agent/query -H 'Content-Type: application/json' -d '{"thread_id":"th-1","question":"What is a dead-letter queue?"}'
  curl -s {api}/agent/result/th-1
  curl -s {api}/agent/threads/th-1/history
Ctrl-C stops it.
`)
}

// account counts what became of the messages, for the last line.
type account struct {
	mu                         sync.Mutex
	batches, deleted, returned int
	released                   int
}

func (a *account) add(_ string, e mapping.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.Outcome {
	case mapping.OutcomeReceiveError:
		return
	case mapping.OutcomeReleased:
		a.released += e.Size
	default:
		a.batches++
		a.deleted += e.Deleted
		a.returned += len(e.Failed)
	}
}

func (a *account) farewell(dataDir string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := "The state was in memory and is gone."
	if dataDir != "" {
		kept = "The state is kept in " + dataDir + "."
	}
	return fmt.Sprintf("Stopped. %d batches, %d messages done, %d deliveries to be tried again, %d released unfinished. %s",
		a.batches, a.deleted, a.returned, a.released, kept)
}
