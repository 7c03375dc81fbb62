//go:build !linux

package main

import "syscall"

func child() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
