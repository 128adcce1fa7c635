package rpcstatus_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/limiter"
)

// refused are requests that were refused, with the answers to their callers.
var refused = []struct {
	name      string
	request   limiter.Request
	err       error
	code      codes.Code
	message   string
	reason    string
	violation *errdetails.QuotaFailure_Violation // nil: none
}{
	{"deny", denied(limiter.Deny, limiter.PerSecond(7), true), nil, codes.ResourceExhausted,
		"rate limit exceeded; retry in 1.501s", "RATE_LIMIT_EXCEEDED",
		&errdetails.QuotaFailure_Violation{Subject: "budget:own", Description: "the budget is used up",
			QuotaId: "own", QuotaValue: 7}},
	{"deny-of-others", denied(limiter.Deny, limiter.PerSecond(7), false), nil, codes.ResourceExhausted,
		"rate limit exceeded; retry in 1.501s", "RATE_LIMIT_EXCEEDED",
		&errdetails.QuotaFailure_Violation{Subject: "shared", Description: "the budget is used up"}},
	{"never", denied(limiter.Never, limiter.PerSecond(math.MaxInt64/2), true), nil,
		codes.ResourceExhausted, "rate limit exceeded; no retry can succeed", "COST_ABOVE_LIMIT",
		&errdetails.QuotaFailure_Violation{Subject: "budget:own",
			Description: "the cost is above what the budget can ever hold",
			QuotaId:     "own", QuotaValue: math.MaxInt64 / 2}},
	{"blocked", denied(limiter.Never, limiter.Blocked, true), nil, codes.ResourceExhausted,
		"rate limit exceeded; no retry can succeed", "CALLER_BLOCKED",
		&errdetails.QuotaFailure_Violation{Subject: "budget:own",
			Description: "the budget allows this caller nothing", QuotaId: "own"}},
	{"gate", limiter.Request{Decision: limiter.Decision{Outcome: limiter.Deny, Limit: limiter.Blocked,
		RetryAfter: wait}}, nil, codes.ResourceExhausted, "rate limit exceeded; retry in 1.501s",
		"CALLER_SUSPENDED",
		&errdetails.QuotaFailure_Violation{Subject: "caller", Description: "the caller is blocked"}},
	{"used-up", limiter.Request{Unavailable: true, Decision: limiter.Decision{Outcome: limiter.Deny,
		Budget: "all", RetryAfter: wait}}, nil, codes.Unavailable,
		"the service is used up; retry in 1.501s", "RATE_LIMIT_EXCEEDED",
		&errdetails.QuotaFailure_Violation{Subject: "shared", Description: "the budget is used up"}},
	{"closed", limiter.Request{Decision: limiter.Decision{Outcome: limiter.Deny, RetryAfter: wait}},
		&limiter.StoreError{Reason: "timeout", Err: context.DeadlineExceeded}, codes.Unavailable,
		"the rate limiter cannot decide now", "RATE_LIMITER_UNAVAILABLE", nil},
	{"nobody", limiter.Request{}, fmt.Errorf("x: %w", limiter.ErrNobody), codes.Unauthenticated,
		"the call carries no principal", "PRINCIPAL_REQUIRED", nil},
	{"gone", limiter.Request{}, context.Canceled, codes.Canceled, "the client has disconnected", "", nil},
	{"late", limiter.Request{}, context.DeadlineExceeded, codes.DeadlineExceeded,
		"the deadline of the call has passed", "", nil},
	{"mistake", limiter.Request{}, &limiter.CostError{Cost: -1}, codes.Internal,
		"the call could not be charged", "RATE_LIMITER_ERROR", nil},
	{"unknown", limiter.Request{}, errors.New("100 % \"\\ \n x"), codes.Internal,
		"the call could not be charged", "RATE_LIMITER_ERROR", nil},
	{"allowed", denied(limiter.Allow, limiter.PerSecond(7), true), nil, codes.Internal,
		"the call could not be charged", "RATE_LIMITER_ERROR", nil},
}

const wait = 1500*time.Millisecond + 1

func denied(o limiter.Outcome, l limiter.Limit, named bool) limiter.Request {
	d := limiter.Decision{Outcome: o, Budget: "own", Limit: l}
	if o == limiter.Deny {
		d.RetryAfter = wait
	}
	return limiter.Request{Decision: d, Named: named}
}

// Real protobuf types read what this package encodes.
func TestStatus_IsWhatProtobufReads(t *testing.T) {
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			cache := rpcstatus.Cache{Domain: "orders.example"}
			s := rpcstatus.Of(&tt.request, tt.err)
			d := cache.Details(s.Reason)

			var want []proto.Message
			if tt.request.Decision.RetryAfter > 0 {
				want = append(want, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
			}
			if tt.violation != nil {
				want = append(want, &errdetails.QuotaFailure{
					Violations: []*errdetails.QuotaFailure_Violation{tt.violation}})
			}
			if tt.reason != "" {
				info := &errdetails.ErrorInfo{Reason: tt.reason, Domain: "orders.example"}
				if tt.violation.GetQuotaId() != "" {
					info.Metadata = map[string]string{"budget": "own"}
				}
				want = append(want, info)
			}

			var got spb.Status
			require.NoError(t, proto.Unmarshal(s.Encode(d), &got))
			assert.Equal(t, tt.code, codes.Code(got.GetCode()))
			assert.Equal(t, tt.message, got.GetMessage())
			require.Len(t, got.GetDetails(), len(want))
			for i, detail := range got.GetDetails() {
				m, err := detail.UnmarshalNew()
				require.NoError(t, err)
				assert.True(t, proto.Equal(want[i], m), "%v, want %v", m, want[i])
				assert.Empty(t, m.ProtoReflect().GetUnknown())
			}

			var read struct {
				Code, Message string
				Details       []struct{ Type, Value string }
			}
			require.NoError(t, json.Unmarshal(s.AppendConnect(nil, d), &read))
			assert.Equal(t, tt.message, read.Message)
			require.Len(t, read.Details, len(want))
			for i, detail := range read.Details {
				assert.EqualValues(t, want[i].ProtoReflect().Descriptor().FullName(), detail.Type)
				value, err := base64.RawStdEncoding.DecodeString(detail.Value)
				require.NoError(t, err)
				assert.Equal(t, got.GetDetails()[i].GetValue(), value)
			}
			for _, c := range s.Message() {
				assert.True(t, ' ' <= c && c <= '~' && c != '%' && c != '"' && c != '\\', "%q", c)
			}
		})
	}
}

func TestCache_EncodesOnceAndIsBounded(t *testing.T) {
	var cache rpcstatus.Cache
	reason := func(tokens int64) rpcstatus.Reason {
		r := denied(limiter.Deny, limiter.PerSecond(tokens), true)
		return rpcstatus.Of(&r, nil).Reason
	}
	first := cache.Details(reason(1))
	for tokens := range int64(1000) {
		d := cache.Details(reason(1 + tokens))
		var info errdetails.ErrorInfo
		require.NoError(t, proto.Unmarshal(d.ErrorInfo, &info))
		assert.Equal(t, "ration", info.GetDomain())
	}
	assert.Same(t, first, cache.Details(reason(1)))
	assert.NotSame(t, cache.Details(reason(1000)), cache.Details(reason(1000)), "it is full")
	assert.Zero(t, testing.AllocsPerRun(10, func() { cache.Details(reason(7)) }))
}

func TestDelay_NeverMakesAWaitTooLongForARetry(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name         string
		wait, jitter time.Duration
		patience     rpcstatus.Patience
		most         time.Duration
		retries      bool
	}{
		{"none", wait, 0, rpcstatus.Unlimited, wait, true},
		{"all-of-it", wait, time.Second, rpcstatus.Unlimited, wait + time.Second, true},
		{"longest", wait, time.Hour, rpcstatus.Patience{Longest: 2 * time.Second, Left: rpcstatus.NoDeadline},
			2 * time.Second, true},
		{"exactly-the-longest", wait, time.Hour,
			rpcstatus.Patience{Longest: wait, Left: rpcstatus.NoDeadline}, wait, true},
		{"deadline", wait, time.Hour, rpcstatus.Patience{Longest: time.Hour, Left: 1510 * ms}, 1509 * ms, true},
		{"just-before-the-deadline", 2 * ms, time.Hour,
			rpcstatus.Patience{Longest: time.Hour, Left: 2*ms + 1}, 2 * ms, true},
		{"beyond-the-deadline", wait, time.Second, rpcstatus.Patience{Longest: time.Hour, Left: wait},
			wait + time.Second, false},
		{"deadline-passed", wait, time.Second, rpcstatus.Patience{Longest: time.Hour, Left: -1},
			wait + time.Second, false},
		{"hundred-years", 100 * 365 * 24 * time.Hour, time.Hour, rpcstatus.Unlimited,
			100*365*24*time.Hour + time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			least, most := tt.wait+tt.jitter, tt.wait
			for range 1000 {
				s := rpcstatus.Status{Code: rpcstatus.ResourceExhausted, Wait: tt.wait}
				s.Delay(tt.jitter, tt.patience)
				require.GreaterOrEqual(t, s.Wait, tt.wait)
				require.LessOrEqual(t, s.Wait, tt.most)
				require.Equal(t, tt.retries, s.Pushback(tt.patience) != rpcstatus.DoNotRetry, s.Wait)
				least, most = min(least, s.Wait), max(most, s.Wait)
			}
			if tt.most-tt.wait > ms {
				assert.Greater(t, most-least, (tt.most-tt.wait)/2, "it is spread")
			}
		})
	}
}

func TestPushback_IsInMillisecondsRoundedUp(t *testing.T) {
	longest := rpcstatus.Patience{Longest: math.MaxInt32 * time.Millisecond, Left: rpcstatus.NoDeadline}
	for wait, want := range map[time.Duration]string{
		0: "", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2",
		math.MaxInt32 * time.Millisecond: "2147483647", math.MaxInt32*time.Millisecond + 1: "-1",
	} {
		s := rpcstatus.Status{Wait: wait}
		assert.Equal(t, want, s.Pushback(longest), wait)
	}
	for wait, want := range map[time.Duration]int64{
		0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, math.MaxInt64: math.MaxInt32,
	} {
		assert.Equal(t, want, rpcstatus.Seconds(wait), wait)
	}
}

// A block until the year 9999 is the longest Duration.
func TestDelay_DoesNotOverflow(t *testing.T) {
	for _, wait := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1} {
		s := rpcstatus.Status{Code: rpcstatus.ResourceExhausted, Wait: wait}
		assert.Equal(t, "rate limit exceeded; retry in 2562047h47m16.854775807s", s.Message())
		s.Delay(time.Hour, rpcstatus.Patience{Longest: time.Hour, Left: rpcstatus.NoDeadline})
		assert.GreaterOrEqual(t, s.Wait, wait)
	}
}
