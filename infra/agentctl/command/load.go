package command

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/api"
	"agentworker/infra/agentctl/load"
)

func newLoad(s *Session) *cobra.Command {
	var (
		o       load.Options
		task    string
		body    string
		thread  string
		threads int
	)
	c := &cobra.Command{
		Use:   "load",
		Short: "Send many tasks, and measure how fast they are taken and done, and what fails",
		Long: `load submits tasks and waits for their ends, a number of them at a time, and then reports
latencies, throughput and failures by reason. Ctrl-C ends it early and reports what was done so
far. Exit code 1: something failed.

It asks questions, each in a thread of its own, unless told otherwise. Submit latencies are
measured here. Latencies from end to end are those that the tasks' records show: from the
submission to the last change. Every task that is waited for keeps one request to the API open:
on AWS that is one invocation of the submit function.`,
		Example: `  agentctl --local load -n 1000 -c 20
  agentctl load -n 200 --threads 10
  agentctl --json load --task agent_run --body '{"question":"Close TK-2."}' | jq .end_to_end`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Tasks < 1 || o.Concurrency < 1 || threads < 0 {
				return Usagef("-n and -c must be 1 or more, --threads 0 or more")
			}
			if o.Timeout <= 0 {
				return Usagef("--timeout is %v: it must be more than 0", o.Timeout)
			}
			if thread == "" {
				thread = "load-" + strings.ToLower(ulid.Make().String())
			}
			requests, err := bodies(task, body, thread, threads)
			if err != nil {
				return err
			}
			return s.load(c.Context(), o, requests)
		},
	}
	f := c.Flags()
	f.IntVarP(&o.Tasks, "tasks", "n", 100, "how many tasks")
	f.IntVarP(&o.Concurrency, "concurrency", "c", 20, "how many of them at a time")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "after which a task that has not ended counts as failed")
	f.StringVar(&task, "task", "rag_query", "type of the tasks")
	f.StringVar(&body, "body", `{"question":"What is a dead-letter queue?"}`, "the tasks' own fields, a JSON object")
	f.StringVar(&thread, "thread", "", "what the threads' ids begin with (default: load- and something new)")
	f.IntVar(&threads, "threads", 0, "spread the tasks over so many threads; 0: a thread each")
	return c
}

// bodies makes the body of each request.
func bodies(task, body, thread string, threads int) (func(i int) (jsontext.Value, error), error) {
	fields := jsontext.Value(body)
	if !fields.IsValid() || fields.Kind() != '{' {
		return nil, Usagef("--body must be one JSON object")
	}
	one := func(i int) (jsontext.Value, error) {
		if threads > 0 {
			i %= threads
		}
		head, err := json.Marshal(struct {
			Task   string `json:"task"`
			Thread string `json:"thread_id"`
		}{task, fmt.Sprintf("%s-%d", thread, i)})
		if err != nil {
			return nil, err
		}
		return joined(head, fields.Clone())
	}
	_, err := one(0)
	return one, err
}

func (s *Session) load(ctx context.Context, o load.Options, body func(i int) (jsontext.Value, error)) error {
	d, err := s.Deployment(ctx)
	if err != nil {
		return err
	}
	// One try: what the API turns away is what is to be measured.
	submit, err := api.New(d, api.Options{Token: token(), Tries: 1})
	if err != nil {
		return err
	}
	defer submit.Close()
	wait, err := s.API(ctx)
	if err != nil {
		return err
	}
	bar := s.bar(o.Tasks, "tasks")
	o.Done = func(done int) { _ = bar.Set(done) }
	report := load.Run(ctx, o, func(ctx context.Context, i int) (string, error) {
		text, err := body(i)
		if err != nil {
			return "", err
		}
		accepted, err := submit.Submit(ctx, text, "")
		return accepted.TaskID, err
	}, wait.Task)
	_ = bar.Exit()
	if err := s.Print(report, func(w io.Writer) { s.showLoad(w, report) }); err != nil {
		return err
	}
	if ctx.Err() == nil && report.Failed > 0 {
		return ErrNo
	}
	return ctx.Err()
}

func (s *Session) showLoad(w io.Writer, r load.Report) {
	if r.Interrupted {
		_, _ = fmt.Fprintf(w, "Interrupted: of %d tasks %d had been accepted and %d were still under way.\n", r.Tasks, r.Accepted, r.UnderWay)
	}
	failed := fmt.Sprint(r.Failed)
	if r.Failed > 0 {
		failed = s.Bad(failed)
	}
	pairs(w, "succeeded", fmt.Sprint(r.Succeeded), "failed", failed, "took", time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond).String(),
		"throughput", fmt.Sprintf("%.1f tasks/s", r.PerSecond))
	_, _ = fmt.Fprintf(w, "\n%-12s %9s %9s %9s %9s\n", "latency, ms", "p50", "p90", "p99", "max")
	for _, l := range []struct {
		name string
		load.Latency
	}{{"submit", r.Submit}, {"end to end", r.EndToEnd}} {
		_, _ = fmt.Fprintf(w, "%-12s %9.0f %9.0f %9.0f %9.0f\n", l.name, l.P50, l.P90, l.P99, l.Max)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		_, _ = fmt.Fprintf(w, "%6d  %s\n", r.Reasons[reason], s.Bad(oneLine(reason)))
	}
}
