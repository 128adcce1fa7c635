package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// A server out of memory deletes still, but writes no more unless the script has
// written before: an account that a credit fills is deleted, and those that a
// credit does not fill are written.
func TestSettle_AServerOutOfMemoryCorrectsAllOrNone(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{Timeout: patient})
	for _, l := range each {
		l.Per = 24 * time.Hour
		for _, users := range [][2]string{{"filled", "other"}, {"other", "filled"}} {
			server.Do("FLUSHALL")
			allowed(t, s, on("other", l, 1))
			charges := append(on(users[0], l, 2), on(users[1], l, 2)...)
			allowed(t, s, charges)
			charges[0].Cost, charges[1].Cost = -2, -2

			server.Do("CONFIG", "SET", "maxmemory", "1")
			err := s.Settle(t.Context(), charges)
			server.Do("CONFIG", "SET", "maxmemory", "0")
			if err != nil {
				failed(t, err, storekit.Unavailable)
				assert.Equal(t, l.Capacity()-2, left(t, s, "filled", l), "%v, %v", l, users)
				assert.Equal(t, l.Capacity()-3, left(t, s, "other", l), "%v, %v", l, users)
				require.NoError(t, s.Settle(t.Context(), charges), "the receipts are valid still")
			}
			assert.Equal(t, l.Capacity(), left(t, s, "filled", l), "%v, %v", l, users)
			assert.Equal(t, l.Capacity()-1, left(t, s, "other", l), "%v, %v", l, users)
		}
	}
}

func TestSettle_AnAnchorFarAheadIsSetToNow(t *testing.T) {
	for _, l := range each {
		t.Run(l.String(), func(t *testing.T) {
			server, s := run(t)
			l.Per = time.Hour
			charges := on("alice", l, 4)
			allowed(t, ahead(t, server, 36*time.Hour), charges)
			charges[0].Cost = 1
			require.NoError(t, s.Settle(t.Context(), charges))
			assert.EqualValues(t, 0, left(t, s, "alice", l))
			assert.EqualValues(t, 1, s.Stats().Reanchored)
		})
	}
}

func TestSettle_IsAllOrNothing(t *testing.T) {
	const newer = "\x03newer"
	server, s := run(t)
	for _, l := range each {
		l.Per = 24 * time.Hour
		for _, users := range [][]string{{"alice", "bob", "alice"}, {"bob", "alice", "alice"}} {
			server.Do("FLUSHALL")
			var charges []limiter.Charge
			for _, user := range users {
				charges = append(charges, on(user, l, 2)...)
			}
			allowed(t, s, charges)
			for i := range charges {
				charges[i].Cost = -1
			}
			good := server.Do("GET", keyOf("alice"))

			server.Do("SET", keyOf("bob"), newer)
			for range 3 {
				err := s.Settle(t.Context(), charges)
				failed(t, err, storekit.Other)
				require.ErrorContains(t, err, keyOf("bob"))
				require.Equal(t, good, server.Do("GET", keyOf("alice")), "%v, %v", l, users)
				require.Equal(t, newer, server.Do("GET", keyOf("bob")))
			}

			server.Do("SET", keyOf("bob"), "poisoned")
			err := s.Settle(t.Context(), charges)
			failed(t, err, storekit.Other)
			require.ErrorContains(t, err, keyOf("bob"))
			require.Equal(t, good, server.Do("GET", keyOf("alice")), "%v, %v", l, users)
			require.EqualValues(t, 0, server.Do("EXISTS", keyOf("bob")))

			require.NoError(t, s.Settle(t.Context(), charges), "the receipts are valid still")
			assert.EqualValues(t, 3, left(t, s, "alice", l), "both corrections, once each")
			assert.EqualValues(t, 5, left(t, s, "bob", l))
			require.ErrorIs(t, s.Settle(t.Context(), charges), limiter.ErrReceipt)
			assert.EqualValues(t, 3, left(t, s, "alice", l))
		}
	}
}

func TestSettle_ADebitOfAForeignValueIsAnErrorAndHeals(t *testing.T) {
	server, s := run(t)
	for _, l := range each {
		l.Per = 24 * time.Hour
		charges := on("alice", l, 1)
		allowed(t, s, charges)
		charges[0].Cost = 3
		server.Do("SET", keyOf("alice"), "poisoned")
		failed(t, s.Settle(t.Context(), charges), storekit.Other)
		assert.EqualValues(t, 0, server.Do("EXISTS", keyOf("alice")), "nothing was debited")
		require.NoError(t, s.Settle(t.Context(), charges))
		assert.EqualValues(t, 2, left(t, s, "alice", l), "debited once")
		require.NoError(t, s.Reset(t.Context(), charges))
	}
}

func TestSettle_SeveralAnchorsFarAheadAreCountedOnce(t *testing.T) {
	server, s := run(t)
	l := limiter.PerHour(5)
	charges := append(on("alice", l, 4), on("bob", l, 4)...)
	allowed(t, ahead(t, server, 36*time.Hour), charges)
	charges[0].Cost, charges[1].Cost = -1, 1
	require.NoError(t, s.Settle(t.Context(), charges))
	assert.EqualValues(t, 2, s.Stats().Reanchored)
	assert.EqualValues(t, 2, left(t, s, "alice", l))
	assert.EqualValues(t, 0, left(t, s, "bob", l))
}

func TestSettle_ADebitThatComesWhenItsWindowHasEndedCountsNow(t *testing.T) {
	server := redistest.Start(t)
	now := time.Unix(1_800_000_000, 0)
	s := newStore(t, newClient(t, server.Network, server.Addr), redisstore.Config{
		Timeout: patient, Now: func() time.Time { return now },
	})
	for _, l := range each[1:] {
		early := []limiter.Charge{}
		for range 5 {
			charges := on(l.String(), l, 1)
			allowed(t, s, charges)
			early = append(early, charges...)
		}
		now = now.Add(12 * time.Second)
		value := server.Do("GET", keyOf(l.String()))
		early[0].Cost = -1
		require.NoError(t, s.Settle(t.Context(), early[:1]))
		assert.EqualValues(t, 5, left(t, s, l.String(), l), "a credit is nothing")
		assert.Equal(t, value, server.Do("GET", keyOf(l.String())), "and writes nothing")
		early[1].Cost = 3
		require.NoError(t, s.Settle(t.Context(), early[1:2]))
		assert.EqualValues(t, 2, left(t, s, l.String(), l))
		early[2].Cost, early[3].Cost = 3, 100
		require.NoError(t, s.Settle(t.Context(), early[2:4]))
		d, err := s.Take(t.Context(), on(l.String(), l, 1))
		require.NoError(t, err)
		assert.Equal(t, limiter.Deny, d.Outcome)
		now = now.Add(d.RetryAfter)
		assert.EqualValues(t, 5, left(t, s, l.String(), l))
		now = now.Add(10 * time.Second)
	}
}
