package command

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows a person how far something has come, on Session.Err; without a terminal there it shows nothing. Exit it
// when it is done.
func (s *Session) bar(most int, unit string) *progressbar.ProgressBar {
	w := s.Err
	if !s.ErrTerminal {
		w = io.Discard
	}
	return progressbar.NewOptions(most,
		progressbar.OptionSetWriter(w), progressbar.OptionSetVisibility(s.ErrTerminal), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(unit), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30))
}
