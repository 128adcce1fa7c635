package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Serve answers until it is interrupted: the public at addr, and operators, unless that
// is empty, at an address that only they reach. It prints hint, with both addresses in it.
func Serve(addr, operators, hint string, s *Service) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	public, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	serve := func(l net.Listener, handler http.Handler) {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		context.AfterFunc(ctx, func() { _ = server.Close() })
		go func() { failed <- server.Serve(l) }()
	}
	if operators != "" {
		private, err := net.Listen("tcp", operators)
		if err != nil {
			return err
		}
		operators = private.Addr().String()
		serve(private, s.Operators)
	}
	serve(public, s)
	fmt.Printf(hint, public.Addr(), operators)
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
