package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

func TestLimiter_TheZeroLimiterSaysSo(t *testing.T) {
	var l limiter.Limiter
	var config *limiter.ConfigError
	_, err := l.Take(background, alice, 1)
	require.EqualError(t, err, "limiter: Limiter: the zero value is not usable: want one made by New")
	require.ErrorAs(t, err, &config)
	_, err = l.Peek(background, alice, 1)
	require.ErrorAs(t, err, &config)
	r, err := l.Reserve(background, alice, 1)
	require.ErrorAs(t, err, &config)
	require.ErrorIs(t, r.Settle(background, 0), limiter.ErrReceipt)
	require.ErrorAs(t, l.Reset(background, alice), &config)
	require.ErrorAs(t, l.Reload([]limiter.Budget{{Name: "a", Limit: limiter.PerHour(1)}}), &config)

	assert.Empty(t, l.Name(), "which is how an adapter can tell")
	a := l.Adapter()
	_, err = a.Setup("http", false, nil)
	require.ErrorAs(t, err, &config)
	request := limiter.Request{Caller: alice, Cost: 1}
	_, err = a.Take(background, &request)
	require.ErrorAs(t, err, &config)
	assert.False(t, request.Decision.Allowed())
	require.NoError(t, a.Check(), "there is nothing to check")
	a.Routes("http", "GET /")
	a.Warn(background, "code", "the zero Limiter logs to the default logger")
}

func TestReservation_TheZeroReservationHasNothingToSettle(t *testing.T) {
	var r limiter.Reservation
	require.ErrorIs(t, r.Settle(background, 1), limiter.ErrReceipt)
	require.ErrorIs(t, r.Cancel(background), limiter.ErrReceipt)
}

func TestBucket_TheZeroBucketSaysSo(t *testing.T) {
	var b limiter.Bucket
	var config *limiter.ConfigError
	for _, cost := range []int64{0, 1} {
		_, err := b.Take(cost)
		require.EqualError(t, err,
			"limiter: Bucket: the zero value is not usable: want one made by NewBucket")
		_, err = b.Peek(cost)
		require.ErrorAs(t, err, &config)
		require.ErrorAs(t, b.Wait(background, cost), &config)
	}
	assert.Equal(t, "0", b.Tokens().RatString())
}
