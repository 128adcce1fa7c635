// Package rpcstatus says what a refused RPC is answered: code, message, wait and the
// details of google.rpc. Package middleware and package grpcinterceptor both use it, so
// that callers read the same answer over every protocol. It encodes the details itself
// and needs no protobuf.
package rpcstatus

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Code is the code of a gRPC status.
type Code uint8

// The codes of refusals, from google.golang.org/grpc/codes.
const (
	Canceled          Code = 1
	DeadlineExceeded  Code = 4
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Internal          Code = 13
	Unavailable       Code = 14
	Unauthenticated   Code = 16
)

var names = map[Code]string{
	Canceled: "canceled", DeadlineExceeded: "deadline_exceeded",
	PermissionDenied: "permission_denied", ResourceExhausted: "resource_exhausted",
	Internal: "internal", Unavailable: "unavailable", Unauthenticated: "unauthenticated",
}

// Reason says why a call was refused, as far as its caller may know. The details that do
// not change from call to call depend on it alone.
type Reason struct {
	why      uint8
	subject  subject
	budget   string // empty if the caller may not know it
	capacity int64  // of that budget
}

// What why can be.
const (
	usedUp      = iota // a budget cannot pay yet
	tooCostly          // the cost is above the capacity
	blocked            // for good
	suspended          // blocked, and the end is known
	storeFailed        // and the policy refuses
	nobody             // there is no principal
	mistake            // of the service
	gone               // the caller has disconnected, or its deadline has passed
)

// subject says whose the account is.
type subject uint8

const (
	shared subject = iota // or the caller may not know
	named                 // by its budget
	caller                // Config.Gate has refused the caller
)

// Status is the answer to one refused call.
type Status struct {
	Code   Code
	Reason Reason
	// Wait is the time after which the call may be repeated. It is 0 if no retry can
	// succeed, or if there is nothing to wait for.
	Wait time.Duration
}

// Decided reports whether a request with the error err was decided by a budget or the
// Gate, also if the local side of a store has decided.
func Decided(err error) bool {
	store, failed := errors.AsType[*limiter.StoreError](err)
	return err == nil || failed && store.Policy == limiter.Local
}

// Of returns the answer to a request that was refused with err.
func Of(r *limiter.Request, err error) Status {
	_, failed := errors.AsType[*limiter.StoreError](err)
	switch {
	case Decided(err):
		return denied(r)
	// Checked before the context's own errors, because the error of a store may wrap one.
	case failed:
		return Status{Unavailable, Reason{why: storeFailed}, max(r.Decision.RetryAfter, 1)}
	case errors.Is(err, limiter.ErrNobody):
		return Status{Code: Unauthenticated, Reason: Reason{why: nobody}}
	case errors.Is(err, context.Canceled):
		return Status{Code: Canceled, Reason: Reason{why: gone}}
	case errors.Is(err, context.DeadlineExceeded):
		return Status{Code: DeadlineExceeded, Reason: Reason{why: gone}}
	default:
		return Status{Code: Internal, Reason: Reason{why: mistake}}
	}
}

// denied returns the answer to a request that a budget or Config.Gate refused. It has the
// name and the capacity of the budget only if the caller may know them. It never has what
// is left, which could show how much others use.
func denied(r *limiter.Request) Status {
	d := &r.Decision
	s := Status{Code: ResourceExhausted}
	switch {
	case r.Named:
		s.Reason = Reason{subject: named, budget: d.Budget, capacity: d.Limit.Capacity()}
	case d.Budget == "":
		s.Reason.subject = caller
	}
	switch {
	case d.Outcome == limiter.Deny && d.Limit == limiter.Blocked:
		s.Reason.why = suspended
	case d.Outcome == limiter.Deny:
		s.Reason.why = usedUp
	case d.Outcome == limiter.Never && d.Limit == limiter.Blocked:
		s.Reason.why = blocked
	case d.Outcome == limiter.Never:
		s.Reason.why = tooCostly
	default: // an allowed request is no refusal
		return Status{Code: Internal, Reason: Reason{why: mistake}}
	}
	if d.Outcome == limiter.Deny {
		s.Wait = max(d.RetryAfter, 1)
	}
	if r.Unavailable {
		s.Code = Unavailable
	}
	return s
}

// Never reports whether no retry can succeed, because a limit never allows the call.
func (s *Status) Never() bool { return s.Reason.why == tooCostly || s.Reason.why == blocked }

// Blocked reports whether the limit allows the caller nothing.
func (s *Status) Blocked() bool { return s.Reason.why == blocked }

// Gone reports whether nobody reads the answer.
func (s *Status) Gone() bool { return s.Reason.why == gone }

// Message returns the message of the status. It is printable ASCII without quotes,
// backslashes and percent signs, so that no protocol needs to escape it.
func (s *Status) Message() string {
	switch s.Reason.why {
	case tooCostly, blocked:
		return "rate limit exceeded; no retry can succeed"
	case storeFailed:
		return "the rate limiter cannot decide now"
	case nobody:
		return "the call carries no principal"
	case mistake:
		return "the call could not be charged"
	case gone:
		if s.Code == DeadlineExceeded {
			return "the deadline of the call has passed"
		}
		return "the client has disconnected"
	}
	if s.Code == Unavailable {
		return "the service is used up; retry in " + milliseconds(s.Wait).String()
	}
	return "rate limit exceeded; retry in " + milliseconds(s.Wait).String()
}

// Patience is how long a client waits for a retry.
type Patience struct {
	Longest time.Duration // beyond this the answer says not to retry
	Left    time.Duration // until the deadline of its call; see NoDeadline
}

// NoDeadline is the Patience.Left of a call without a deadline.
const NoDeadline time.Duration = math.MaxInt64

// Unlimited is the Patience of a client that decides for itself.
var Unlimited = Patience{math.MaxInt64, NoDeadline}

// ends reports whether a client should not retry after the wait.
func (p Patience) ends(wait time.Duration) bool {
	return wait > p.Longest || milliseconds(wait) >= p.Left
}

// Delay adds a random time up to jitter to the wait. If the client would retry after the
// wait, it still does after the sum.
func (s *Status) Delay(jitter time.Duration, p Patience) {
	if s.Wait == 0 || jitter <= 0 {
		return
	}
	if !p.ends(s.Wait) {
		jitter = min(jitter, p.Longest-s.Wait)
		if p.Left != NoDeadline {
			// The sum is rounded up to milliseconds, and must then be below Left.
			jitter = min(jitter, (p.Left-1).Truncate(time.Millisecond)-s.Wait)
		}
	}
	s.Wait += min(rand.N(max(jitter, 0)+1), math.MaxInt64-s.Wait)
}

// DoNotRetry is the pushback of a call that clients should not repeat.
const DoNotRetry = "-1"

// Pushback returns the value of grpc-retry-pushback-ms: the wait in milliseconds, rounded
// up, or DoNotRetry, or "" if the client's own backoff applies.
func (s *Status) Pushback(p Patience) string {
	switch {
	case s.Never() || s.Wait > 0 && p.ends(s.Wait):
		return DoNotRetry
	case s.Wait == 0:
		return ""
	}
	return strconv.FormatInt(milliseconds(s.Wait).Milliseconds(), 10)
}

// milliseconds returns a wait in whole milliseconds, rounded up, at least 1.
func milliseconds(wait time.Duration) time.Duration {
	whole := wait.Truncate(time.Millisecond)
	switch {
	case whole == wait:
	case whole > math.MaxInt64-time.Millisecond:
		return math.MaxInt64
	default:
		whole += time.Millisecond
	}
	return max(whole, time.Millisecond)
}

// Seconds returns a wait in whole seconds for Retry-After: rounded up, at least 1, and at
// most what every recipient can parse (RFC 9111, section 1.2.2).
func Seconds(wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return min(max(seconds, 1), math.MaxInt32)
}
