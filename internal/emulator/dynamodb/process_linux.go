package dynamodb

import "syscall"

// processAttributes keep Ctrl-C in a terminal from ending dynoxide before those who still write to it (a process group
// of its own), and have the kernel end it when the parent dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
