package main

import "syscall"

// child is how programs are started: as a group of their own, and not to outlive this process, however it ends.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
