package resilient

import (
	"context"
	"errors"
	"net"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

var (
	errOpen    = errors.New("resilient: the shared store does not answer, and is not asked for now")
	errSilent  = errors.New("resilient: the shared store has not answered within Config.Timeout")
	errNil     = errors.New("resilient: the shared store returned a nil *StoreError as its error")
	errTooMany = errors.New("resilient: 4096 calls of the shared store have not returned")
)

// failed returns the error of a store that did not decide.
func failed(reason string, err error) *limiter.StoreError {
	return &limiter.StoreError{Reason: reason, Err: err}
}

// sign is what an answer says about the server behind a store.
type sign uint8

const (
	nothing sign = iota // the server was not asked
	replied             // it has replied, be it with an error
	silence             // it has not
)

// heard returns what the error of a store says about its server.
func heard(err error) sign {
	if err == nil {
		return replied
	}
	if store, ok := errors.AsType[*limiter.StoreError](err); ok {
		switch store.Reason {
		case storekit.Timeout, storekit.Unavailable, storekit.Ambiguous:
			return silence
		case storekit.Overload:
			return nothing
		}
		return replied
	}
	_, wrongCost := errors.AsType[*limiter.CostError](err)
	_, wrongConfig := errors.AsType[*limiter.ConfigError](err)
	switch {
	case wrongCost, wrongConfig, errors.Is(err, limiter.ErrReceipt),
		errors.Is(err, storekit.ErrDeadline):
		return nothing
	case errors.Is(err, context.DeadlineExceeded):
		return silence
	}
	if _, network := errors.AsType[net.Error](err); network { // also a refused connection
		return silence
	}
	return replied
}

// isPlain reports whether err is target, and no *limiter.StoreError that says more.
func isPlain(err, target error) bool {
	_, store := errors.AsType[*limiter.StoreError](err)
	return !store && errors.Is(err, target)
}
