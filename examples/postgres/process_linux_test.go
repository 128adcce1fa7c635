package main

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// asPostgres returns how to run the server, which refuses to run as root: as the user
// postgres then, to whom it gives dir. The server ends with this process.
func asPostgres(dir string) (*syscall.SysProcAttr, error) {
	own := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() != 0 {
		return own, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	own.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return own, os.Chown(dir, uid, gid)
}
