package grpcinterceptor_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ration-go/ration/grpcinterceptor"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

const plenty = 1_000_000

// spending returns a limiter of plenty and how much a user has spent of it.
func spending(t *testing.T) (l *limiter.Limiter, spent func(user string) int64) {
	t.Helper()
	l, _ = newLimiter(t, perUser(limiter.PerHour(plenty)))
	return l, func(user string) int64 {
		d, err := l.Peek(t.Context(), limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: user}}, 0)
		require.NoError(t, err)
		return plenty - d.Remaining
	}
}

// seven is a Cost.
func seven(context.Context, string, any) int64 { return 7 }

// byCode charges successes 1 and calls without an argument 9; all else stands.
func byCode(code codes.Code, reserved int64) int64 {
	switch code {
	case codes.OK:
		return 1
	case codes.InvalidArgument:
		return 9
	case codes.Canceled, codes.DeadlineExceeded:
		return 0 // which nobody is to ask for
	}
	return reserved
}

func fails(code codes.Code) func(context.Context) error {
	return func(context.Context) error { return status.Error(code, "as told") }
}

func TestSettle_SettlesACallOnce(t *testing.T) {
	l, spent := spending(t)
	client, _ := act(t, &service{unary: func(ctx context.Context) error {
		var cost *limiter.CostError
		assert.EqualValues(t, 7, spent("alice"), "reserved while it runs")
		assert.ErrorAs(t, grpcinterceptor.Settle(ctx, -1), &cost)
		assert.NoError(t, grpcinterceptor.Settle(ctx, 20))
		assert.ErrorIs(t, grpcinterceptor.Settle(ctx, 0), limiter.ErrReceipt)
		return nil
	}}, intercept(t, l, users, grpcinterceptor.Config{Cost: seven, Settles: true, ByCode: byCode}))
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	assert.EqualValues(t, 20, spent("alice"), "the handler's word is before the rule's")
}

func TestSettle_NeedsACallThatHasReserved(t *testing.T) {
	assert.ErrorIs(t, grpcinterceptor.Settle(t.Context(), 1), limiter.ErrReceipt)
	for name, cfg := range map[string]grpcinterceptor.Config{
		"not-asked-for": {Cost: seven},
		"by-code":       {Cost: seven, ByCode: func(_ codes.Code, cost int64) int64 { return cost }},
	} {
		t.Run(name, func(t *testing.T) {
			l, spent := spending(t)
			client, _ := act(t, &service{unary: func(ctx context.Context) error {
				assert.ErrorIs(t, grpcinterceptor.Settle(ctx, 1), limiter.ErrReceipt)
				return nil
			}}, intercept(t, l, users, cfg))
			_, err := client.EmptyCall(as(t, "alice"), empty)
			require.NoError(t, err)
			assert.EqualValues(t, 7, spent("alice"))
		})
	}
}

func TestSettle_SettlesEachLimiterThatLetsIt(t *testing.T) {
	outer, spentOuter := spending(t)
	inner, spentInner := spending(t)
	cfg := grpcinterceptor.Config{Cost: seven, Settles: true}
	once := intercept(t, inner, users, cfg)
	client, _ := act(t, &service{unary: func(ctx context.Context) error {
		return grpcinterceptor.Settle(ctx, 2)
	}}, intercept(t, outer, users, cfg), once, once)
	_, err := client.EmptyCall(as(t, "alice"), empty)
	require.NoError(t, err)
	assert.EqualValues(t, 2, spentOuter("alice"))
	assert.EqualValues(t, 2, spentInner("alice"), "one that is there twice reserves once")
}

func TestByCode_SeesTheCodeThatIsSent(t *testing.T) {
	for name, tt := range map[string]struct {
		handler func(context.Context) error
		cost    int64
		code    codes.Code
	}{
		"ok":                {func(context.Context) error { return nil }, 1, codes.OK},
		"status":            {fails(codes.Unauthenticated), 7, codes.Unauthenticated},
		"above":             {fails(codes.InvalidArgument), 9, codes.InvalidArgument},
		"plain":             {func(context.Context) error { return io.EOF }, 7, codes.Unknown},
		"canceled":          {fails(codes.Canceled), 7, codes.Canceled},
		"deadline":          {fails(codes.DeadlineExceeded), 7, codes.DeadlineExceeded},
		"context-error":     {func(context.Context) error { return context.Canceled }, 7, codes.Canceled},
		"panic":             {func(context.Context) error { panic("mistake") }, 7, codes.Internal},
		"another-hour-left": {func(ctx context.Context) error { return ctx.Err() }, 1, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			l, spent := spending(t)
			var seen []codes.Code
			client, _ := act(t, &service{
				unary:  tt.handler,
				stream: func(s conversation) error { return tt.handler(s.Context()) },
			}, intercept(t, l, users, grpcinterceptor.Config{Cost: seven,
				ByCode: func(code codes.Code, reserved int64) int64 {
					seen = append(seen, code)
					return byCode(code, reserved)
				}}))
			_, err := client.EmptyCall(as(t, "alice"), empty)
			assert.Equal(t, tt.code, status.Code(err))
			assert.Equal(t, tt.cost, spent("alice"))

			stream, err := client.FullDuplexCall(as(t, "bob"))
			require.NoError(t, err)
			_, err = stream.Recv()
			if tt.code == codes.OK {
				assert.ErrorIs(t, err, io.EOF)
			} else {
				assert.Equal(t, tt.code, status.Code(err))
			}
			want := map[int64]int64{1: 1, 7: 1, 9: 9}[tt.cost]
			assert.Equal(t, want, spent("bob"), "of a stream 1 is reserved")
			if len(seen) > 0 {
				assert.Equal(t, []codes.Code{tt.code, tt.code}, seen)
			}
		})
	}
}

func TestByCode_WhatTheCallerMayBringAboutStands(t *testing.T) {
	cfg := grpcinterceptor.Config{Cost: seven, ByCode: byCode}
	t.Run("leaves", func(t *testing.T) {
		l, spent := spending(t)
		ctx, leave := context.WithCancel(as(t, "alice"))
		client, stop := act(t, &service{unary: func(ctx context.Context) error {
			leave()
			<-ctx.Done()
			return nil // a success that nobody has seen
		}}, intercept(t, l, users, cfg))
		_, err := client.EmptyCall(ctx, empty)
		assert.Equal(t, codes.Canceled, status.Code(err))
		stop()
		assert.EqualValues(t, 7, spent("alice"))
	})
	// Called directly, since a deadline over a connection needs a real clock.
	t.Run("too-late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, spent := spending(t)
			i := intercept(t, l, users, cfg)
			ctx, cancel := context.WithTimeout(keying.WithPrincipal(t.Context(), alice), time.Second)
			defer cancel()
			_, err := i.Unary(ctx, empty, unaryInfo, func(ctx context.Context, _ any) (any, error) {
				<-ctx.Done()
				return empty, nil
			})
			require.NoError(t, err)
			assert.EqualValues(t, 7, spent("alice"))
		})
	})
}

func TestByCode_LogsOnceWhatCouldNotBeSettled(t *testing.T) {
	l, log := newLimiter(t, perUser(limiter.PerHour(plenty)))
	client, _ := act(t, &service{unary: func(context.Context) error { return nil }},
		intercept(t, l, users, grpcinterceptor.Config{
			ByCode: func(codes.Code, int64) int64 { return -1 },
		}))
	for range 3 {
		_, err := client.EmptyCall(as(t, "alice"), empty)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"settle-failed"}, log.warnings())
}

func TestNewTap_RefusesWhatItCannotSettle(t *testing.T) {
	l, _ := spending(t)
	for field, cfg := range map[string]grpcinterceptor.Config{
		"Config.Settles": {Settles: true},
		"Config.ByCode":  {ByCode: byCode},
	} {
		_, err := grpcinterceptor.NewTap(l, keying.Addresses{}, cfg)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Equal(t, field, config.Field)
	}
}

func TestSettle_AStreamSettlesItsOpen(t *testing.T) {
	l, spent := spending(t)
	client, stop := act(t, &service{stream: func(s conversation) error {
		for {
			if _, err := s.Recv(); err != nil {
				return grpcinterceptor.Settle(s.Context(), 30)
			}
		}
	}}, intercept(t, l, users, grpcinterceptor.Config{Cost: seven, Settles: true}))
	_, _, err := converse(as(t, "alice"), client)
	require.NoError(t, err)
	stop()
	assert.EqualValues(t, 30, spent("alice"))
}

// With Messages, each message reserves its cost, and Settle settles the last.
func TestSettle_AStreamSettlesEachMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		lengths []int
		actuals []int64 // -1: nothing is said
		want    int64
	}{
		"each":            {[]int{10, 20, 30}, []int64{1, 2, 3}, 6},
		"not-the-second":  {[]int{10, 20, 30}, []int64{1, -1, 3}, 24},
		"none":            {[]int{10, 20, 30}, []int64{-1, -1, -1}, 60},
		"first-to-0":      {[]int{10, 20}, []int64{0, 0}, 0},
		"first-costs-1":   {[]int{1, 20}, []int64{0, 5}, 5},
		"first-costs-0":   {[]int{0, 20}, []int64{-1, 5}, 6},
		"more-than-it-is": {[]int{10}, []int64{50}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			l, spent := spending(t)
			cfg := byLength
			cfg.Settles = true
			cfg.ByCode = func(codes.Code, int64) int64 { return 1000 } // not of such streams
			client, stop := act(t, &service{stream: func(s conversation) error {
				for _, actual := range tt.actuals {
					if _, err := s.Recv(); err != nil {
						return err
					}
					if actual >= 0 {
						assert.NoError(t, grpcinterceptor.Settle(s.Context(), actual))
						assert.ErrorIs(t, grpcinterceptor.Settle(s.Context(), actual), limiter.ErrReceipt)
					}
					if err := s.Send(response); err != nil {
						return err
					}
				}
				return nil
			}}, intercept(t, l, users, cfg))
			_, _, err := converse(as(t, "alice"), client, tt.lengths...)
			require.NoError(t, err)
			stop()
			assert.Equal(t, tt.want, spent("alice"))
		})
	}
}

// What the handler has said of the open by itself is not taken to pay for a
// message, too.
func TestSettle_AnOpenSettledByItselfPaysNothingOfTheFirstMessage(t *testing.T) {
	for length, reserved := range []int64{3, 3 + 1, 3 + 2, 3 + 3} {
		l, spent := spending(t)
		cfg := byLength
		cfg.Settles = true
		client, stop := act(t, &service{stream: func(s conversation) error {
			assert.NoError(t, grpcinterceptor.Settle(s.Context(), 3))
			if _, err := s.Recv(); err != nil {
				return err
			}
			assert.Equal(t, reserved, spent("alice"))
			if length > 0 {
				assert.NoError(t, grpcinterceptor.Settle(s.Context(), 2))
			}
			assert.ErrorIs(t, grpcinterceptor.Settle(s.Context(), 2), limiter.ErrReceipt)
			return s.Send(response)
		}}, intercept(t, l, users, cfg))
		_, _, err := converse(as(t, "alice"), client, length)
		require.NoError(t, err)
		stop()
		assert.Equal(t, 3+2*int64(min(length, 1)), spent("alice"))
	}
}

func TestSettle_AMessageThatIsRefusedLeavesTheOneBeforeToSettle(t *testing.T) {
	l, _ := newLimiter(t, perUser(limiter.PerHour(15)))
	cfg := byLength
	cfg.Settles = true
	client, stop := act(t, &service{stream: func(s conversation) error {
		_, err := s.Recv()
		assert.NoError(t, err)
		assert.NoError(t, s.Send(response))
		_, err = s.Recv()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.NoError(t, grpcinterceptor.Settle(s.Context(), 1))
		return err
	}}, intercept(t, l, users, cfg))
	_, _, err := converse(as(t, "alice"), client, 10, 10)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	stop()
	assert.EqualValues(t, 14, left(t, l))
}
