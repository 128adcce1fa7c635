package grpcinterceptor_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// queue is a stream whose messages are there already: their costs.
type queue struct {
	grpc.ServerStream
	ctx     context.Context
	costs   []int64
	trailer metadata.MD
}

func (q *queue) Context() context.Context     { return q.ctx }
func (q *queue) SetTrailer(added metadata.MD) { q.trailer = metadata.Join(q.trailer, added) }
func (q *queue) RecvMsg(msg any) error {
	if len(q.costs) == 0 {
		return io.EOF
	}
	*msg.(*int64), q.costs = q.costs[0], q.costs[1:]
	return nil
}

// account is an interceptor whose messages are their own cost, on a clock.
type account struct {
	*grpcinterceptor.Interceptor
	limiter *limiter.Limiter
	now     time.Time
	ctx     context.Context
	opened  bool // the last stream was
}

func newAccount(t *testing.T, capacity int64) *account {
	a := &account{now: standing(), ctx: keying.WithPrincipal(t.Context(), alice)}
	a.limiter = limiter.Must(limiter.New(
		newStore(func() time.Time { return a.now }),
		[]limiter.Budget{perUser(limiter.Limit{Tokens: 3, Per: time.Second, Burst: capacity})},
		limiter.Config{}))
	a.Interceptor = intercept(t, a.limiter, users, grpcinterceptor.Config{Messages: true,
		Cost: func(_ context.Context, _ string, msg any) int64 { return *msg.(*int64) }})
	return a
}

var (
	alice        = limiter.Principal{Kind: "user", ID: "alice"}
	alicesDuplex = limiter.Caller{Principal: alice, Route: duplex}
)

// stream returns how many of the messages one stream could pay, and its end.
func (a *account) stream(costs []int64) (paid int, trailer metadata.MD, err error) {
	q := &queue{ctx: a.ctx, costs: costs}
	a.opened = false
	err = a.Stream(a, q, &grpc.StreamServerInfo{FullMethod: duplex},
		func(_ any, stream grpc.ServerStream) error {
			a.opened = true
			for {
				switch err := stream.RecvMsg(new(int64)); err {
				case nil:
					paid++
				case io.EOF:
					return nil
				default:
					return err
				}
			}
		})
	return paid, q.trailer, err
}

// calls is the same with a unary call for each message.
func (a *account) calls(costs []int64) (paid int, err error) {
	for _, cost := range costs {
		_, err := a.Unary(a.ctx, &cost, &grpc.UnaryServerInfo{FullMethod: duplex},
			func(context.Context, any) (any, error) { paid++; return nil, nil })
		if err != nil {
			return paid, err
		}
	}
	return paid, nil
}

func (a *account) left(t *testing.T) int64 {
	d, err := a.limiter.Peek(t.Context(), alicesDuplex, 0)
	require.NoError(t, err)
	return d.Remaining
}

func promised(err error) (wait time.Duration, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			return retry.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}

// A stream costs what unary calls with its messages would, and at least 1, which
// it pays at once and keeps paying; it ends where they would be refused, with the
// same answer; and a stream that begins with the refused message passes after the
// wait, and not before.
func FuzzMessages_CostWhatUnaryCallsWould(f *testing.F) {
	f.Add(uint8(3), uint8(0), []byte{})
	f.Add(uint8(3), uint8(0), []byte{1, 1, 1, 1})
	f.Add(uint8(5), uint8(0), []byte{5})
	f.Add(uint8(5), uint8(0), []byte{6})
	f.Add(uint8(5), uint8(0), []byte{0, 4, 2})
	f.Add(uint8(4), uint8(0), []byte{3, 3})
	f.Add(uint8(4), uint8(0), []byte{3, 7})
	f.Add(uint8(5), uint8(3), []byte{4, 1})
	f.Add(uint8(5), uint8(6), []byte{1})
	f.Add(uint8(5), uint8(6), []byte{9})
	f.Fuzz(func(t *testing.T, capacity, used uint8, lengths []byte) {
		costs := make([]int64, min(len(lengths), 50))
		for i := range costs {
			costs[i] = int64(lengths[i] % 16)
		}
		full := 1 + int64(capacity%16)
		opening, extra := []int64{1}, 0 // calls that are no message
		switch {
		case len(costs) == 0:
			extra = 1
		case costs[0] > full: // as a whole, so that the answer is never
			opening, extra = append(opening, costs...), 1
		case costs[0] > 1:
			opening, extra = append(opening, costs[0]-1), 1
			fallthrough
		default:
			opening = append(opening, costs[1:]...)
		}
		streamed, called := newAccount(t, full), newAccount(t, full)
		for _, a := range []*account{streamed, called} {
			_, err := a.limiter.Take(t.Context(), alicesDuplex, int64(used)%(full+1))
			require.NoError(t, err)
		}

		paid, trailer, err := streamed.stream(costs)
		want, wantErr := called.calls(opening)
		require.Equal(t, max(want-extra, 0), paid)
		require.Equal(t, status.Code(wantErr), status.Code(err))
		wait, waits := promised(err)
		wantWait, wantWaits := promised(wantErr)
		if wantWaits && streamed.opened && paid == 0 {
			d, err := called.limiter.Peek(t.Context(), alicesDuplex, costs[0])
			require.NoError(t, err)
			wantWait = d.RetryAfter // of the whole message, for a new stream
		}
		if streamed.opened {
			require.Equal(t, wantWaits, waits)
			require.Equal(t, wantWait, wait)
			require.Equal(t, called.left(t), streamed.left(t))
		}
		require.Equal(t, status.Code(err) == codes.ResourceExhausted, len(trailer[pushbackKey]) == 1)
		if !waits {
			return
		}
		first := int64(1) // of the stream that goes on; the open alone, where that was refused
		if streamed.opened {
			first = costs[paid]
		}
		streamed.now = streamed.now.Add(wait - 1)
		d, err := streamed.limiter.Peek(t.Context(), alicesDuplex, first)
		require.NoError(t, err)
		require.False(t, d.Allowed(), "a nanosecond early")
		streamed.now = streamed.now.Add(1)
		_, _, err = streamed.stream([]int64{first})
		require.NoError(t, err, "when it was told")
	})
}
