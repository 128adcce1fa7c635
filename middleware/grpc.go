package middleware

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ration-go/ration/limiter"
)

// isGRPC reports whether the request is a gRPC call: a POST over HTTP/2 with a
// content type such as application/grpc or application/grpc+proto. Clients of
// grpc-web are no gRPC clients here: they read HTTP.
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

// writeGRPC answers a gRPC call: HTTP status 200 and the status of the call in
// the one frame of headers ("Trailers-Only"), after which clients may retry. A
// plain 429 would reach the caller as another error, without its wait.
func (no refusal) writeGRPC(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	disinherit(h)
	untell(h) // these are trailers, where the fields must not be
	code, message := no.grpcStatus()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", code)
	h.Set("Grpc-Message", message)
	if pushback := no.pushback(r); pushback != "" {
		h.Set("Grpc-Retry-Pushback-Ms", pushback)
	}
	w.WriteHeader(http.StatusOK)
}

// grpcStatus returns the code and a message that needs no escaping.
func (no refusal) grpcStatus() (code, message string) {
	switch {
	case no.answer == limiter.AnswerCanceled:
		return grpcCanceled, "the caller has gone"
	case no.answer == limiter.AnswerNever:
		return grpcResourceExhausted, "rate limit exceeded; no retry can succeed"
	case no.status == http.StatusTooManyRequests:
		return grpcResourceExhausted, "rate limit exceeded; retry in " + no.roundedUp().String()
	case no.answer == limiter.AnswerDeny:
		return grpcUnavailable, "the service is used up; retry in " + no.roundedUp().String()
	case no.status == http.StatusServiceUnavailable:
		return grpcUnavailable, "the rate limiter cannot decide now"
	case no.status == http.StatusUnauthorized:
		return grpcUnauthenticated, "the call carries no principal"
	case no.status == http.StatusForbidden:
		return grpcPermissionDenied, "the call carries no principal"
	default:
		return grpcInternal, "the call could not be charged"
	}
}

// maxPushback is the longest wait that clients are told to sit out.
const maxPushback = 30 * time.Second

// roundedUp returns the wait in whole milliseconds.
func (no refusal) roundedUp() time.Duration {
	return no.wait.Truncate(time.Millisecond) + min(no.wait%time.Millisecond, 1)*time.Millisecond
}

// pushback returns the wait in milliseconds; -1 where sitting it out is no use;
// empty where nothing is to be said of retries.
func (no refusal) pushback(r *http.Request) string {
	switch {
	case no.answer == limiter.AnswerNever || no.wait > maxPushback:
		return "-1"
	case no.wait == 0:
		return ""
	}
	wait := no.roundedUp()
	if timeout, ok := grpcTimeout(r.Header.Get("Grpc-Timeout")); ok && timeout <= wait {
		return "-1" // the call would be over by then
	}
	return decimal(wait.Milliseconds())
}

var grpcUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// grpcTimeout reads the time that the caller gives to its call: up to 8 digits
// and a unit. What is more than a Duration holds is no bound.
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
