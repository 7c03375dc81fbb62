//go:build unix && !linux

package dynamodb

import "syscall"

// processAttributes keep Ctrl-C in a terminal from ending dynoxide before those who still write to it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
