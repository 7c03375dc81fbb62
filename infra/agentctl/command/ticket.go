package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newTicket(s *Session) *cobra.Command {
	return &cobra.Command{
		Use:   "ticket ID",
		Short: "Show a ticket's status and version",
		Long: `ticket shows a ticket as its last update has left it. Its updates are the tasks of the thread
ticket-<id>: agentctl history ticket-<id>.`,
		Example: `  agentctl ticket TK-1
  agentctl submit --ticket TK-1 --status closed --wait && agentctl ticket TK-1`,
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := s.API(c.Context())
			if err != nil {
				return err
			}
			t, err := client.Ticket(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.Print(t.Raw, func(w io.Writer) {
				pairs(w, "ticket", oneLine(t.TicketID), "status", oneLine(t.Status), "version", fmt.Sprint(t.Version), "updated", moment(t.UpdatedAt))
			})
		},
	}
}
