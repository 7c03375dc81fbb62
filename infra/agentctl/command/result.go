package command

import (
	"io"

	"github.com/spf13/cobra"
)

func newResult(s *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "result THREAD",
		Short: "Show a thread's newest result",
		Long: `result shows the newest result of a thread: an answer as text with its sources, any other result
as JSON. Exit code 1: there is none yet.`,
		Example: `  agentctl result th-1
  agentctl --json result th-1 | jq -r .answer`,
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := s.API(c.Context())
			if err != nil {
				return err
			}
			result, err := client.Result(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.Print(result, func(w io.Writer) { showResult(w, result) })
		},
	}
}
