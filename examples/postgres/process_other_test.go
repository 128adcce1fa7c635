//go:build !linux

package main

import "syscall"

// asPostgres returns how to run the server: as the user of this process.
func asPostgres(string) (*syscall.SysProcAttr, error) { return &syscall.SysProcAttr{}, nil }
