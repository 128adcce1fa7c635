package storekit_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

var start = time.Unix(1_800_000_000, 0)

func on(user string, l limiter.Limit, cost int64) limiter.Charge {
	principal := limiter.Principal{Kind: "user", ID: user}
	return limiter.Charge{
		Key: limiter.Key{Budget: "requests", Principal: principal}, Limit: l, Cost: cost,
	}
}

var each = []limiter.Limit{
	{Tokens: 5, Per: 10 * time.Second},
	{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.FixedWindow},
	{Tokens: 5, Per: 10 * time.Second, Algorithm: limiter.RollingLog},
}

// decide runs one request by hand and returns what is stored then, and the charge.
func decide(
	t testing.TB, v storekit.Verb, c limiter.Charge, now time.Time, stored []byte,
) (storekit.Record, limiter.Charge) {
	t.Helper()
	charges := []limiter.Charge{c}
	r, err := storekit.Prepare(v, charges, nil)
	require.NoError(t, err)
	records, err := r.Decide(now, [][]byte{stored})
	require.NoError(t, err)
	r.Finish(charges)
	if len(records) == 0 {
		return storekit.Record{State: stored}, charges[0]
	}
	require.Len(t, records, 1)
	return records[0], charges[0]
}

// The stored form is a promise: later versions read what this one has written.
func TestState_IsStoredAsBefore(t *testing.T) {
	for i, want := range []string{
		"010005" + "80c8afa025" + "05" + "8080a0bbd29df1fa31" + "00" + "80d88ee16f",
		"010105" + "80c8afa025" + "05" + "8080a0bbd29df1fa31" + "00" + "03",
		"010205" + "80c8afa025" + "05" + "80a8f6f4d99df1fa31" + "00" + "8094ebdc03" + "01" + "00" + "02",
	} {
		record, _ := decide(t, storekit.Take, on("alice", each[i], 1), start, nil)
		at := start
		if each[i].Algorithm == limiter.RollingLog {
			at = start.Add(time.Second)
		}
		record, _ = decide(t, storekit.Take, on("alice", each[i], 2), at, record.State)
		assert.Equal(t, want, hex.EncodeToString(record.State), "%v", each[i])
	}
}

func TestState_ThatCannotBeUsedIsAnErrorAndResetCuresIt(t *testing.T) {
	good, _ := decide(t, storekit.Take, on("alice", each[0], 1), start, nil)
	log, _ := decide(t, storekit.Take, on("alice", each[2], 1), start, nil)
	log, _ = decide(t, storekit.Take, on("alice", each[2], 1), start.Add(time.Second), log.State)
	head := func(algorithm byte, numbers ...byte) []byte {
		return append([]byte{1, algorithm}, numbers...)
	}
	huge := bytes.Repeat([]byte{0xff}, 9) // with one byte more, a number above 63 bits
	with := func(b []byte, rest ...byte) []byte { return append(bytes.Clone(b), rest...) }
	newest := len(log.State) - 2
	for name, b := range map[string][]byte{
		"empty":                   {},
		"version 0":               {0, 0, 5},
		"version alone":           {1},
		"text":                    []byte("not an account"),
		"JSON":                    []byte(`{"tokens": NaN}`),
		"cut off":                 good.State[:len(good.State)-1],
		"a byte too many":         with(good.State, 0),
		"too long":                make([]byte, 1<<20),
		"no such algorithm":       head(3, 5, 5, 5, 0, 0, 0),
		"no tokens":               head(0, 0, 5, 5, 0, 0, 0),
		"no period":               head(0, 5, 0, 5, 0, 0, 0),
		"negative capacity":       head(0, with([]byte{5, 5}, with(huge, 1, 0, 0, 0)...)...),
		"a window's own capacity": head(1, 5, 5, 6, 0, 0, 0),
		"negative window":         head(1, with([]byte{5, 5, 5, 0, 0}, with(huge, 1)...)...),
		"overflowing number":      head(1, with([]byte{5, 5, 5, 0, 0}, with(huge, 0x7f)...)...),
		"carried before a window": head(1, 5, 5, 5, 0, 2, 1),
		"used beyond arithmetic":  head(0, with([]byte{5, 5, 5, 0}, with(huge, 1, 0)...)...),
		"entry of no tokens":      with(log.State[:newest], 0, 0),
		"entries of one instant":  with(log.State[:newest], 0, 1, 0, 1),
		"carried before all time": head(2, with(with([]byte{5, 5, 5},
			0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2), 0, 1)...),
		"entry before all time": head(2, with([]byte{5, 5, 5, 3, 0},
			with(with(huge[:8], 0x7f, 1), with(huge[:8], 0x7f, 1)...)...)...),
		"more tokens than numbers": with(log.State[:newest], with(with([]byte{1}, huge[:8]...),
			0x7f, 0, 1)...),
		"half an entry": with(log.State, 1),
	} {
		t.Run(name, func(t *testing.T) {
			for _, l := range each {
				backend := newTable()
				store := newStore(t, backend, func() time.Time { return start })
				charge := on("alice", l, 1)
				key := storekit.KeyOf(charge.Key, nil)
				backend.rows[key] = b
				taken := []limiter.Charge{charge}
				taken[0].Receipt = limiter.Receipt{At: start.UnixNano(), Taken: 1, Place: 0, Valid: true}
				_, err := store.Peek(t.Context(), []limiter.Charge{charge})
				unusable(t, err)
				unusable(t, store.Settle(t.Context(), taken))
				_, err = store.Take(t.Context(), []limiter.Charge{on("bob", l, 1), charge})
				unusable(t, err)
				assert.Equal(t, b, backend.rows[key])
				assert.Len(t, backend.rows, 1)
				require.NoError(t, store.Reset(t.Context(), []limiter.Charge{charge}))
				assert.Empty(t, backend.rows)
				d, err := store.Take(t.Context(), []limiter.Charge{charge})
				require.NoError(t, err)
				assert.Equal(t, int64(4), d.Remaining)
			}
		})
	}
}

func unusable(t *testing.T, err error) {
	t.Helper()
	var store *limiter.StoreError
	require.ErrorAs(t, err, &store)
	assert.Equal(t, storekit.Other, store.Reason)
	assert.ErrorContains(t, err, `an account of budget "requests" cannot be used`)
	assert.ErrorContains(t, err, "not an account")
	assert.ErrorContains(t, err, "Reset makes it full")
	assert.NotContains(t, err.Error(), "alice")
}

func TestState_OfANewerVersionSaysSo(t *testing.T) {
	backend := newTable()
	store := newStore(t, backend, nil)
	charge := on("alice", each[0], 1)
	backend.rows[storekit.KeyOf(charge.Key, nil)] = []byte{2, 9, 9}
	_, err := store.Take(t.Context(), []limiter.Charge{charge})
	require.ErrorContains(t, err, "written by a newer version: 2, and this program knows 1")
	require.ErrorContains(t, err, "Reset makes it full")
	require.NoError(t, store.Reset(t.Context(), []limiter.Charge{charge}))
	_, err = store.Take(t.Context(), []limiter.Charge{charge})
	require.NoError(t, err)
}

// An account is full at FullAt, so that its row can be deleted, and FullAt is less
// than a second late.
func TestRecord_FullAtIsTheFirstSecondAtWhichTheAccountIsFull(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limits := append([]limiter.Limit{
		{Tokens: 7, Per: 11 * time.Second, Burst: 90}, {Tokens: 1, Per: 36_524 * 24 * time.Hour},
		{Tokens: math.MaxInt64, Per: time.Second}, {Tokens: 999_983, Per: 24 * time.Hour},
	}, each...)
	for range 2000 {
		l := limits[random.IntN(len(limits))]
		now := time.Unix(random.Int64N(1<<33)-1<<32, random.Int64N(1e9))
		if random.IntN(8) == 0 {
			now = time.Unix(0, math.MaxInt64-random.Int64N(1e12))
		}
		cost := 1 + random.Int64N(l.Capacity())
		record, charge := decide(t, storekit.Take, on("alice", l, cost), now, nil)
		require.Equal(t, limiter.Allow, charge.Result.Outcome)
		exact := now.Add(charge.Result.ResetAfter)
		require.Zero(t, record.FullAt.Nanosecond())
		require.False(t, record.FullAt.Before(exact), "%v at %v: %v", l, now, record.FullAt)
		require.Less(t, record.FullAt.Sub(exact), time.Second, "%v at %v: %v", l, now, record.FullAt)
		if record.FullAt.After(time.Unix(0, math.MaxInt64)) {
			continue // beyond the last instant
		}
		_, charge = decide(t, storekit.Peek, on("alice", l, 0), record.FullAt, record.State)
		require.Equal(t, l.Capacity(), charge.Result.Remaining)
	}
}

// What is left after a debt, and a debt's end, are stored exactly.
func TestState_KeepsADebt(t *testing.T) {
	for _, l := range each {
		record, charge := decide(t, storekit.Take, on("alice", l, 2), start, nil)
		charge.Cost = 1000
		record, _ = decide(t, storekit.Settle, charge, start, record.State)
		_, charge = decide(t, storekit.Take, on("alice", l, 1), start, record.State)
		assert.Equal(t, limiter.Deny, charge.Result.Outcome)
		assert.False(t, record.FullAt.Before(start.Add(charge.Result.ResetAfter)))
	}
}

// FuzzState feeds arbitrary bytes to the decoder: they are an error, or an account
// that has at most its capacity left, and that is stored and read again unchanged.
func FuzzState(f *testing.F) {
	for _, l := range each {
		record, _ := decide(f, storekit.Take, on("alice", l, 2), start, nil)
		f.Add(record.State)
		record, _ = decide(f, storekit.Take, on("alice", l, 1), start.Add(time.Second), record.State)
		f.Add(record.State)
	}
	f.Add([]byte{})
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		again, left, capacity, err := storekit.Decode(b)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, left, int64(0))
		require.LessOrEqual(t, left, capacity)
		twice, leftAgain, _, err := storekit.Decode(again)
		require.NoError(t, err)
		require.Equal(t, again, twice)
		require.Equal(t, left, leftAgain)
	})
}

// FuzzDecide takes, and settles, on arbitrary bytes: whatever they say, no more than
// a capacity is left, and what is written can be read.
func FuzzDecide(f *testing.F) {
	for i, l := range each {
		record, _ := decide(f, storekit.Take, on("alice", l, 2), start, nil)
		f.Add(record.State, uint8(i), int64(2), start.UnixNano()+1, int64(-1))
	}
	f.Fuzz(func(t *testing.T, b []byte, which uint8, cost, now, delta int64) {
		charges := []limiter.Charge{on("alice", each[which%3], max(cost, 0))}
		r, err := storekit.Prepare(storekit.Take, charges, nil)
		require.NoError(t, err)
		records, err := r.Decide(time.Unix(0, now), [][]byte{b})
		if err != nil {
			return
		}
		r.Finish(charges)
		require.LessOrEqual(t, charges[0].Result.Remaining, int64(5))
		require.GreaterOrEqual(t, charges[0].Result.RetryAfter, time.Duration(0))
		if len(records) == 0 || charges[0].Result.Outcome != limiter.Allow {
			return
		}
		charges[0].Cost = max(delta, -charges[0].Cost)
		settled, _ := decide(t, storekit.Settle, charges[0], time.Unix(0, now), records[0].State)
		_, left, capacity, err := storekit.Decode(settled.State)
		require.NoError(t, err)
		require.LessOrEqual(t, left, capacity)
	})
}
