package grpcinterceptor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ration-go/ration/limiter"
)

// refusal is the answer to a call that is refused.
type refusal struct {
	status   *status.Status
	pushback string // milliseconds, or -1; empty if the trailer is not set
}

// trailer returns the trailer with the pushback. Clients that find two values do not
// retry, so only the interceptor that refuses sets it.
func (r *refusal) trailer() metadata.MD {
	return metadata.Pairs("grpc-retry-pushback-ms", r.pushback)
}

// end sets the trailer of a stream and returns the status.
func (r *refusal) end(stream grpc.ServerStream) error {
	if r.pushback != "" {
		stream.SetTrailer(r.trailer())
	}
	return r.status.Err()
}

// final makes r, unless it is nil, the refusal of a call that clients should not retry.
func (r *refusal) final() *refusal {
	if r != nil && r.pushback != "" {
		r.pushback = "-1"
	}
	return r
}

// refusal returns the answer to a call that is refused, or nil if it is allowed.
func (i *Interceptor) refusal(ctx context.Context, r *limiter.Request, err error) *refusal {
	store, storeFailed := errors.AsType[*limiter.StoreError](err)
	switch {
	case r.Decision.Allowed():
		return nil
	case err == nil, storeFailed && store.Policy == limiter.Local:
		return i.exhausted(ctx, r)
	// Checked before the context's own errors, because the error of a store may wrap one.
	case storeFailed:
		return i.unavailable(ctx, &r.Decision)
	case errors.Is(err, limiter.ErrNobody):
		return plain(codes.Unauthenticated, "the call carries no principal")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{status: status.FromContextError(err)}
	default:
		return plain(codes.Internal, "the call could not be charged")
	}
}

// plain returns a refusal that says nothing about retries.
func plain(code codes.Code, message string) *refusal {
	return &refusal{status: status.New(code, message)}
}

// exhausted returns the answer to a call that a budget or the Gate refused. It has the
// name and the capacity of the budget only if the caller may know them. It never has
// what is left, which could show how much others use.
func (i *Interceptor) exhausted(ctx context.Context, r *limiter.Request) *refusal {
	d := &r.Decision
	info := &errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: i.cfg.Domain}
	violation := &errdetails.QuotaFailure_Violation{Subject: "shared", Description: reason(d)}
	switch {
	case r.Named:
		info.Metadata = map[string]string{"budget": d.Budget}
		violation.Subject = "budget:" + d.Budget
		violation.QuotaId = d.Budget
		violation.QuotaValue = d.Limit.Capacity()
	case d.Budget == "":
		violation.Subject = "caller"
	}
	failure := &errdetails.QuotaFailure{
		Violations: []*errdetails.QuotaFailure_Violation{violation},
	}
	if d.Outcome == limiter.Never {
		return detailed("-1", codes.ResourceExhausted,
			"rate limit exceeded; no retry can succeed", failure, info)
	}
	code, message := codes.ResourceExhausted, "rate limit exceeded"
	if r.Unavailable {
		code, message = codes.Unavailable, "the service is used up"
	}
	return detailed(i.pushback(ctx, d.RetryAfter), code,
		fmt.Sprintf("%s; retry in %v", message, milliseconds(d.RetryAfter)),
		retryInfo(d), failure, info)
}

// reason describes why a budget, or the Gate of the limiter, refused a call. A decision
// of the Gate has no budget.
func reason(d *limiter.Decision) string {
	switch {
	case d.Limit == limiter.Blocked && d.Budget == "":
		return "the caller is blocked"
	case d.Limit == limiter.Blocked:
		return "the budget allows this caller nothing"
	case d.Outcome == limiter.Never:
		return "the cost is above what the budget can ever hold"
	default:
		return "the budget is used up"
	}
}

// unavailable returns the answer to a call that was refused because the store failed.
func (i *Interceptor) unavailable(ctx context.Context, d *limiter.Decision) *refusal {
	return detailed(i.pushback(ctx, d.RetryAfter), codes.Unavailable,
		"the rate limiter cannot decide now", retryInfo(d))
}

func retryInfo(d *limiter.Decision) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}
}

func detailed(
	pushback string, code codes.Code, message string, details ...protoadapt.MessageV1,
) *refusal {
	st := status.New(code, message)
	// It fails only for strings that are not UTF-8, which New refuses.
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return &refusal{st, pushback}
}

// milliseconds returns a wait in whole milliseconds, rounded up, at least 1.
func milliseconds(wait time.Duration) time.Duration {
	return max(wait+time.Millisecond-1, time.Millisecond).Truncate(time.Millisecond)
}

// pushback returns the wait in milliseconds, rounded up. It returns -1 if the wait is
// longer than MaxPushback or reaches the deadline of the call.
func (i *Interceptor) pushback(ctx context.Context, wait time.Duration) string {
	if wait > i.cfg.MaxPushback {
		return "-1"
	}
	wait = milliseconds(wait)
	deadline, ok := ctx.Deadline()
	if ok && time.Until(deadline) <= wait {
		return "-1"
	}
	return strconv.FormatInt(wait.Milliseconds(), 10)
}
