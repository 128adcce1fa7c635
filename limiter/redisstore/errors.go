package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// errLate is the answer of a script that began after its deadline: it did
// nothing.
var errLate = errors.New("redisstore: the server ran the script after its deadline")

// errOverload is the error of a request that is not sent because of those before it.
var errOverload = &limiter.StoreError{Reason: storekit.Overload,
	Err: errors.New("redisstore: more requests wait than the server can answer in time")}

// errNoAnswer is the error of a request that waited while calls had no answer.
var errNoAnswer = &limiter.StoreError{Reason: storekit.Timeout,
	Err: errors.New("redisstore: calls have no answer, and this request was not sent")}

// errNoReply is the cause if a call ends without a reply.
var errNoReply = errors.New("redisstore: no reply in time")

// silent returns the error while the breaker is open. The cause is the last failure.
func silent(cause error) *limiter.StoreError {
	return &limiter.StoreError{Reason: storekit.Unavailable, Err: fmt.Errorf(
		"redisstore: the server does not answer, and is asked no more until it does: %w", unhidden(cause))}
}

// errPanicked is the cause if a client's method does not return.
var errPanicked = errors.New("redisstore: the client panicked")

// Errors of the script.
const (
	replyNewer   = "RATIONNEWER "
	replySpoiled = "RATIONSPOILED "
)

// refusals are replies of a server that has run nothing. Those that pass by
// themselves are worth another try.
var refusals = []struct {
	prefix string
	passes bool
}{
	{"NOSCRIPT ", true}, {"READONLY ", true}, {"LOADING ", true}, {"MASTERDOWN ", true},
	{"TRYAGAIN ", true}, {"CLUSTERDOWN ", true}, {"BUSY ", true},
	{"NOREPLICAS ", false}, {"OOM ", false}, {"MISCONF ", false},
	{"ERR max number of clients reached", false}, {"MOVED ", false}, {"ASK ", false},
	{"CROSSSLOT ", false},
}

// refusal returns whether err is a reply that says that nothing has run, and
// whether that may pass by itself.
func refusal(err error) (refused, passes bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false, false
	}
	text := reply.Error()
	if strings.HasPrefix(text, "ERR Error running script ") { // before Redis 7: "... : -OOM ..."
		_, text, _ = strings.Cut(text, ": -")
	}
	for _, r := range refusals {
		if strings.HasPrefix(text, r.prefix) {
			return true, r.passes
		}
	}
	return false, false
}

// storeError returns err as the error of a call that was, or was not, written to
// a connection.
func storeError(err error, sent bool) *limiter.StoreError {
	err = unhidden(err)
	var reply redis.Error
	isReply := errors.As(err, &reply)
	refused, _ := refusal(err)
	switch {
	case errors.Is(err, errLate):
		return &limiter.StoreError{Reason: storekit.Timeout, Err: err}
	case refused:
		return &limiter.StoreError{Reason: storekit.Unavailable, Err: explainSlots(err)}
	case isReply:
		return &limiter.StoreError{Reason: storekit.Other, Err: explain(reply)}
	case sent:
		return &limiter.StoreError{Reason: storekit.Ambiguous, Err: err}
	case timedOut(err):
		return &limiter.StoreError{Reason: storekit.Timeout, Err: err}
	default:
		return &limiter.StoreError{Reason: storekit.Unavailable, Err: err}
	}
}

func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.As(err, &network) && network.Timeout()
}

// explain says more of the script's own errors.
func explain(reply error) error {
	text := reply.Error()
	if key, ok := strings.CutPrefix(text, replySpoiled); ok {
		return fmt.Errorf("redisstore: the value of %q is no account; a Take or Settle deletes it, "+
			"so that the account is full", key)
	}
	if key, ok := strings.CutPrefix(text, replyNewer); ok {
		return fmt.Errorf("redisstore: the value of %q has a format newer than this program, which "+
			"leaves it as it is: upgrade the program, or make the account full by Reset, or by "+
			"deleting the key (KeyFor returns the key of an account)", key)
	}
	return reply
}

// explainSlots says more of the replies of a server that has some of the keys only.
func explainSlots(err error) error {
	for _, prefix := range []string{"MOVED ", "ASK ", "CROSSSLOT "} {
		if strings.HasPrefix(err.Error(), prefix) {
			return fmt.Errorf("redisstore: the client's server is a node of a Redis Cluster, which "+
				"has its keys on several servers: want a client of one server, or of a Sentinel: %w", err)
		}
	}
	return err
}

// mayHaveRun reports whether a call that ended with err may have changed
// something.
func mayHaveRun(err error) bool {
	var store *limiter.StoreError
	return errors.As(err, &store) && store.Reason == storekit.Ambiguous
}

// wrong returns an error for a field of this package.
func wrong(field string, value any, reason string) *limiter.ConfigError {
	return &limiter.ConfigError{Package: "redisstore", Field: field, Value: value, Reason: reason}
}
