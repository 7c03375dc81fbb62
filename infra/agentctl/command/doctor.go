package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/doctor"
)

const aboutDoctor = `Looks at the running stack and says, worst first, what in it breaks a promise: what is wrong, with the number seen,
which promise suffers, and what mends it. It only reads, and receives no message.

Exit codes: 0 when nothing is wrong, 1 when something is. A check that your credentials may not make counts as
wrong, since nobody knows then. One that the place does not have, such as IAM on this machine, is named and does not count.`

const doctorExamples = `  agentctl --local doctor
  agentctl --stage prod doctor
  agentctl --json doctor | jq -r '.findings[] | "\(.severity) \(.check) \(.part)"'`

func newDoctor(s *Session) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Find what is wrong with the stack", Long: aboutDoctor, Example: doctorExamples, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := s.Deployment(c.Context())
			if err != nil {
				return err
			}
			report, err := doctor.Examine(c.Context(), d)
			if err != nil {
				return err
			}
			if err := s.Print(report, func(w io.Writer) { s.writeReport(w, report) }); err != nil {
				return err
			}
			if !report.Sound() {
				return ErrNo
			}
			return nil
		},
	}
}

func (s *Session) writeReport(w io.Writer, r doctor.Report) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // Print tells of a writer that fails
	for _, f := range r.Findings {
		colour := s.Busy
		if f.Severity == doctor.Critical {
			colour = s.Bad
		}
		line("%s  %s", colour(string(f.Severity)), f.Problem)
		line("  promise  %s", f.Promise)
		line("  mend     %s", f.Mend)
		line("  %s", s.Faint("check    "+string(f.Check)))
		line("")
	}
	unknown := 0
	for _, n := range r.NotMade {
		switch n.Why {
		case doctor.NotServed:
			line("%s", s.Faint(fmt.Sprintf("not checked: %s; %s is not to be had here", n.What, n.Needs)))
			continue
		case doctor.NotPermitted:
			line("%s  %s could not be looked at: it needs %s, which your credentials do not have", s.Busy("unknown"), n.What, n.Needs)
		case doctor.Throttled:
			line("%s  %s could not be looked at: AWS has had too many calls of %s from this account just now; run it again", s.Busy("unknown"), n.What, n.Needs)
		default:
			line("%s  %s could not be looked at: the answer to %s makes no sense", s.Busy("unknown"), n.What, n.Needs)
		}
		unknown++
	}
	summary := fmt.Sprintf("%d checks, %d wrong", r.Checks, len(r.Findings))
	if unknown > 0 {
		summary += fmt.Sprintf(", %d unknown", unknown)
	}
	if r.Sound() {
		summary = s.Good(summary)
	}
	line("%s: %s", r.Stack, summary)
}
