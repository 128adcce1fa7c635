package storekit

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ration-go/ration/limiter"
)

// storeError returns what a Backend returned as a *limiter.StoreError: its own, or
// one with the reason that the error shows.
func storeError(err error) error {
	var own *limiter.StoreError
	if errors.As(err, &own) {
		return own
	}
	return &limiter.StoreError{Reason: reasonOf(err), Err: err}
}

func reasonOf(err error) string {
	var network net.Error
	var operation *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return Timeout
	case errors.As(err, &operation):
		return Unavailable
	default:
		return Other
	}
}

// ambiguous reports whether a call that ended with err may have written.
func ambiguous(err error) bool {
	var store *limiter.StoreError
	return errors.As(err, &store) && store.Reason == Ambiguous
}

// guard calls f and returns a panic as an ambiguous error, since f may have written
// already. Nothing else would recover it in a goroutine of the store.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &limiter.StoreError{Reason: Ambiguous,
				Err: fmt.Errorf("storekit: the backend panicked: %v", p)}
		}
	}()
	return f()
}
