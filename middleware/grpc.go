package middleware

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// isGRPC reports whether the request is a gRPC call: a POST over HTTP/2 with a
// content type such as application/grpc or application/grpc+proto. It is false for
// gRPC-Web, whose clients read the HTTP status.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 || r.Method != http.MethodPost {
		return false
	}
	rest, found := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return found && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// The codes of a gRPC status, from google.golang.org/grpc/codes.
const (
	grpcCanceled          = "1"
	grpcPermissionDenied  = "7"
	grpcResourceExhausted = "8"
	grpcInternal          = "13"
	grpcUnavailable       = "14"
	grpcUnauthenticated   = "16"
)

// writeGRPC answers a gRPC call with HTTP status 200 and one frame of headers
// ("Trailers-Only") that has the status of the call. Clients retry only after such
// an answer. A client makes another error of a plain 429, and loses the wait.
func (f *refusal) writeGRPC(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	removeInherited(h)
	removeState(h) // these are trailers, in which the fields are not allowed
	code, message := f.grpcStatus()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", code)
	h.Set("Grpc-Message", message)
	if pushback := f.pushback(r); pushback != "" {
		h.Set("Grpc-Retry-Pushback-Ms", pushback)
	}
	w.WriteHeader(http.StatusOK)
}

// grpcStatus returns the code and a message that needs no escaping.
func (f *refusal) grpcStatus() (code, message string) {
	switch {
	case f.outcome == canceled:
		return grpcCanceled, "the client has disconnected"
	case f.outcome == never:
		return grpcResourceExhausted, "rate limit exceeded; no retry can succeed"
	case f.status == http.StatusTooManyRequests:
		return grpcResourceExhausted, "rate limit exceeded; retry in " + f.roundedUp().String()
	case f.outcome == deny:
		return grpcUnavailable, "the service is used up; retry in " + f.roundedUp().String()
	case f.status == http.StatusServiceUnavailable:
		return grpcUnavailable, "the rate limiter cannot decide now"
	case f.status == http.StatusUnauthorized:
		return grpcUnauthenticated, "the call carries no principal"
	case f.status == http.StatusForbidden:
		return grpcPermissionDenied, "the call carries no principal"
	default:
		return grpcInternal, "the call could not be charged"
	}
}

// maxPushback is the longest wait after which clients should retry.
const maxPushback = 30 * time.Second

// roundedUp returns the wait in whole milliseconds.
func (f *refusal) roundedUp() time.Duration {
	return f.wait.Truncate(time.Millisecond) + min(f.wait%time.Millisecond, 1)*time.Millisecond
}

// pushback returns the wait in milliseconds, "-1" if the client should not retry,
// or "" for the client's own backoff.
func (f *refusal) pushback(r *http.Request) string {
	switch {
	case f.outcome == never || f.wait > maxPushback:
		return "-1"
	case f.wait == 0:
		return ""
	}
	wait := f.roundedUp()
	if timeout, ok := grpcTimeout(r.Header.Get("Grpc-Timeout")); ok && timeout <= wait {
		return "-1" // the call would be over by then
	}
	return decimal(wait.Milliseconds())
}

var grpcUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// grpcTimeout parses the timeout of a call: up to 8 digits and a unit. It is false
// for a timeout that is not valid or that no Duration can hold.
func grpcTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	unit, known := grpcUnits[s[len(s)-1]]
	if err != nil || !known || n > uint64(math.MaxInt64/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
