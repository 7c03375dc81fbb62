// Package command is agentctl's commands, one file each.
//
// A command is a function that takes the [Session] and returns a *cobra.Command; [newRoot] lists them. It asks the
// session for the deployment when it needs one, writes its answer by [Session.Print] or to Session.Out, everything that
// is not the answer to Session.Err, and returns [ErrNo] when the answer is "no", or an error. What errors mean for the
// exit code is in one place, exit.go.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/deployment"
)

const aboutRoot = `agentctl asks, watches and mends a running agentworker.

It finds the stack by its name, agentworker-<stage>, with the AWS credentials of your
environment; with --local it finds the chain that make run has started on this machine.

Exit codes:
  0    fine
  1    the answer is no: the task failed, something wrong was found, there is nothing of this id, you said no
  2    wrong usage, also what the API refuses as wrong
  3    the stack could not be found or reached, or could not do it
  130  interrupted

Environment: AWS_PROFILE, AWS_REGION and all other variables of the AWS SDK, AWS_ENDPOINT_URL
too; STAGE; AGENTWORKER_TOKEN, a bearer token for an API that was deployed with auth=jwt;
NO_COLOR.`

const rootExamples = `  agentctl --local submit "What is a dead-letter queue?" --wait
  agentctl --stage prod --region eu-west-1 history th-1
  agentctl --json status th-1.01KB6Z6Y4ZJ5V1X9M0Q7E2S3AB | jq -r .status
  source <(agentctl completion bash)`

// newRoot is the whole tree of commands.
func newRoot(s *Session) *cobra.Command {
	root := &cobra.Command{
		Use: "agentctl", Short: "Ask, watch and mend a running agentworker", Long: aboutRoot, Example: rootExamples,
		SilenceUsage: true, SilenceErrors: true, // exit.go tells
	}
	flags := root.PersistentFlags()
	flags.StringVar(&s.Stage, "stage", cmp.Or(os.Getenv("STAGE"), deployment.DefaultStage), "stage of the stack (env STAGE)")
	flags.StringVar(&s.Region, "region", "", "AWS region of the stack (default: your environment's)")
	flags.BoolVar(&s.Local, "local", false, "the chain on this machine, wherever AWS_PORT or AWS_ENDPOINT_URL says")
	flags.BoolVar(&s.JSON, "json", false, "answer in JSON")
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.AddCommand(newSubmit(s), newStatus(s), newResult(s), newHistory(s), newThread(s), newTicket(s), newLoad(s), newDLQ(s), newDoctor(s))
	prepare(root, s)
	return root
}

// prepare makes all commands tell wrong usage from what goes wrong later.
func prepare(c *cobra.Command, s *Session) {
	for _, sub := range c.Commands() {
		prepare(sub, s)
	}
	run := c.RunE
	switch {
	case run != nil:
		c.RunE = func(c *cobra.Command, args []string) error {
			s.began = true
			return run(c, args)
		}
	case c.HasSubCommands() && c.HasParent():
		c.Args = noSuchCommand
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

// oneID takes one argument, which a variable of a script that is not set leaves empty.
func oneID(c *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(c, args); err != nil {
		return err
	}
	if args[0] == "" {
		return errors.New("the id is empty")
	}
	return nil
}

// noSuchCommand does for the commands below the root what cobra does for the root's.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	hint := ""
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "\n\nDid you mean this?\n\t" + strings.Join(similar, "\n\t") + "\n"
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
}

// Main runs agentctl with the arguments and returns its exit code. What the context's end interrupts ends in good
// order.
func Main(ctx context.Context, args []string, streams Streams) int {
	s := &Session{Streams: streams}
	defer s.close()
	root := newRoot(s)
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	return s.exit(ctx, called, err)
}
