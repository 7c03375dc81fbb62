package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"agentworker/infra/agentctl/api"
)

// The exit codes, which scripts decide on.
const (
	exitFine        = 0
	exitNo          = 1
	exitUsage       = 2
	exitUnreached   = 3
	exitInterrupted = 130 // as a shell has it for SIGINT
)

// ErrNo says that the command has done its work and that the answer is no: a task that failed, something wrong that was
// found. The answer tells why; nothing more is written. Wrapped in an error with a text, the text is written.
var ErrNo = errors.New("no")

// UsageError is wrong usage that only the running command could notice.
type UsageError struct{ Problem string }

func (e *UsageError) Error() string { return e.Problem }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Nof makes an [ErrNo] with a text.
func Nof(format string, args ...any) error { return &noError{fmt.Sprintf(format, args...)} }

type noError struct{ reason string }

func (e *noError) Error() string { return e.reason }

func (e *noError) Is(target error) bool { return target == ErrNo }

// exit tells what went wrong and returns the exit code.
func (s *Session) exit(ctx context.Context, called *cobra.Command, err error) int {
	if err != nil && s.found != nil {
		err = s.found.Explain(err)
	}
	var usage *UsageError
	var problem *api.Problem
	switch {
	case err == nil:
		return exitFine
	case ctx.Err() != nil:
		if errors.Is(err, context.Canceled) || errors.Is(err, ErrNo) {
			s.Note("agentctl: interrupted")
		} else { // and something did not end with it
			s.Note("agentctl: interrupted: %v", printable(err.Error()))
		}
		return exitInterrupted
	case err == ErrNo: //nolint:errorlint // a wrapped one has something to say
		return exitNo
	case errors.Is(err, ErrNo):
		s.Note("agentctl: %v", err)
		return exitNo
	case !s.began || errors.As(err, &usage):
		s.Note("agentctl: %v\nSee: %s --help", err, called.CommandPath())
		return exitUsage
	}
	s.Note("agentctl: %v", printable(err.Error()))
	if errors.As(err, &problem) {
		return refusal(problem.Status)
	}
	return exitUnreached
}

// refusal is the exit code for what the API says instead of an answer.
func refusal(status int) int {
	switch status {
	case http.StatusNotFound:
		return exitNo
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return exitUsage
	}
	return exitUnreached
}
