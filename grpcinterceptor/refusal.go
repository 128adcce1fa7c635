package grpcinterceptor

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// refusal is the answer to a call whose handler does not run.
type refusal struct {
	status   *status.Status
	pushback string // milliseconds, or -1; empty: nothing is said about retries
}

// trailer carries the pushback. Clients that find two values do not retry, so
// it is set by the one interceptor that refuses, and nowhere else.
func (r *refusal) trailer() metadata.MD {
	return metadata.Pairs("grpc-retry-pushback-ms", r.pushback)
}

// end tells the client of a stream when to retry, and returns the status.
func (r *refusal) end(stream grpc.ServerStream) error {
	if r.pushback != "" {
		stream.SetTrailer(r.trailer())
	}
	return r.status.Err()
}

// final returns r, which may be nil, as the refusal of a call that no client
// should repeat by itself.
func (r *refusal) final() *refusal {
	if r != nil && r.pushback != "" {
		r.pushback = "-1"
	}
	return r
}

// judge reports what became of a call, and returns nil for one that may run.
func (i *Interceptor) judge(
	ctx context.Context, route string, d limiter.Decision, err error,
) *refusal {
	answer, no := i.answer(ctx, d, err)
	i.limiter.Answered(transport, route, answer)
	return no
}

func (i *Interceptor) answer(
	ctx context.Context, d limiter.Decision, err error,
) (limiter.Answer, *refusal) {
	_, storeFailed := errors.AsType[*limiter.StoreError](err)
	switch {
	case err == nil && d.Allowed():
		return limiter.AnswerAllow, nil
	case err == nil && d.Outcome == limiter.Deny:
		return limiter.AnswerDeny, i.exhausted(ctx, d)
	case err == nil:
		return limiter.AnswerNever, i.exhausted(ctx, d)
	// Before the context's own errors: a store's timeout is not the caller's.
	case storeFailed && d.Allowed():
		return limiter.AnswerErrorOpen, nil
	case storeFailed:
		return limiter.AnswerErrorClosed, i.unavailable(ctx, d)
	case errors.Is(err, limiter.ErrNobody):
		return limiter.AnswerUnauthenticated, plain(codes.Unauthenticated,
			"the call carries no principal")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return limiter.AnswerCanceled, &refusal{status: status.FromContextError(err)}
	default:
		return limiter.AnswerErrorClosed, plain(codes.Internal, "the call could not be charged")
	}
}

// plain is a refusal that a retry does not mend.
func plain(code codes.Code, message string) *refusal {
	return &refusal{status: status.New(code, message)}
}

// exhausted answers a call that a budget refused.
func (i *Interceptor) exhausted(ctx context.Context, d limiter.Decision) *refusal {
	info := &errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: i.cfg.Domain}
	violation := &errdetails.QuotaFailure_Violation{Subject: "shared"}
	if i.tells(d.Budget) {
		info.Metadata = map[string]string{"budget": d.Budget}
		violation.Subject = "budget:" + d.Budget
		violation.QuotaId = d.Budget
		violation.QuotaValue = d.Limit.Capacity()
	}
	failure := &errdetails.QuotaFailure{
		Violations: []*errdetails.QuotaFailure_Violation{violation},
	}
	if d.Outcome == limiter.Never {
		violation.Description = "the cost is above what the budget can ever hold"
		if d.Limit == limiter.Blocked {
			violation.Description = "the budget allows this caller nothing"
		}
		return detailed("-1", codes.ResourceExhausted,
			"rate limit exceeded; no retry can succeed", failure, info)
	}
	violation.Description = "the budget is used up"
	return detailed(i.pushback(ctx, d.RetryAfter), codes.ResourceExhausted,
		fmt.Sprintf("rate limit exceeded; retry in %v", milliseconds(d.RetryAfter)),
		retryInfo(d), failure, info)
}

// tells reports whether the caller may be told the name and the capacity of the
// budget: it is ByPrincipal, ByTenant or public. How much is left is never told, so
// that no caller learns what others use. After a Reload the name may be gone.
func (i *Interceptor) tells(name string) bool {
	if slices.Contains(i.cfg.Public, name) {
		return true
	}
	b, ok := i.limiter.Budget(name)
	return ok && b.Scope.Personal()
}

// unavailable answers a call whose store failed, by the policy Closed.
func (i *Interceptor) unavailable(ctx context.Context, d limiter.Decision) *refusal {
	return detailed(i.pushback(ctx, d.RetryAfter), codes.Unavailable,
		"the rate limiter cannot decide now", retryInfo(d))
}

func retryInfo(d limiter.Decision) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}
}

func detailed(
	pushback string, code codes.Code, message string, details ...protoadapt.MessageV1,
) *refusal {
	st := status.New(code, message)
	// It fails only for strings that are not UTF-8, and New has refused those.
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return &refusal{st, pushback}
}

// milliseconds returns a wait in whole milliseconds, rounded up, at least 1.
func milliseconds(wait time.Duration) time.Duration {
	return max(wait+time.Millisecond-1, time.Millisecond).Truncate(time.Millisecond)
}

// pushback returns the wait in milliseconds, rounded up, or -1 where sitting it
// out is no use: the call would be over by then, or it takes too long.
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
