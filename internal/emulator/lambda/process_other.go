//go:build unix && !linux

package lambda

import (
	"errors"
	"syscall"
)

// processGroup makes the process the leader of a group. When this program dies the process notices that its Runtime API
// is gone and exits; there is no signal for it here.
func processGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit cannot wait without collecting the process here.
func awaitExit(int) bool { return false }

// hasExited tells whether the process is gone.
func hasExited(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// peakMemoryMiB is not known here.
func peakMemoryMiB(int) int { return 0 }
