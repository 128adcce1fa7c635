package storekit_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// What a key is made of is a promise, as what is stored under it is.
func TestKeyOf_IsAsBefore(t *testing.T) {
	k := limiter.Key{
		Budget:    "requests",
		Principal: limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"},
		Route:     "GET /orders/{id}", Workload: "nightly",
	}
	plain, keyed := storekit.KeyOf(k, nil), storekit.KeyOf(k, []byte("secret"))
	assert.Equal(t, wantPlain, hex.EncodeToString(plain[:]))
	assert.Equal(t, wantKeyed, hex.EncodeToString(keyed[:]))
}

const (
	wantPlain = "fa9596a27d8d54e23e06b229e534805bdbcfce27c100b07e8cde08be6ff918d1"
	wantKeyed = "62d9754c6a9aacb08cca2fd9a1aaab871aff796cbcb78b10cf6be18d3e47cd15"
)

func TestRequest_KeysAreSortedAndWithoutRepetition(t *testing.T) {
	var charges []limiter.Charge
	for i := range 40 {
		charges = append(charges, on(fmt.Sprint("user ", i%20), each[0], 1))
	}
	r, err := storekit.Prepare(storekit.Take, charges, nil)
	require.NoError(t, err)
	keys := r.Keys()
	assert.Len(t, keys, 20)
	assert.True(t, slices.IsSortedFunc(keys, func(a, b storekit.Key) int {
		return bytes.Compare(a[:], b[:])
	}))
	for _, c := range charges {
		assert.Contains(t, keys, storekit.KeyOf(c.Key, nil))
	}
	other, err := storekit.Prepare(storekit.Reset, charges, []byte("secret"))
	require.NoError(t, err)
	for _, key := range keys {
		assert.NotContains(t, other.Keys(), key)
	}
}

func TestRequest_DecideDoesNotTouchTheChargesAndMayRunAgain(t *testing.T) {
	before := on("alice", each[2], 2)
	before.Receipt = limiter.Receipt{At: 1, Taken: 2, Place: 3, Valid: true}
	charges := []limiter.Charge{before}
	r, err := storekit.Prepare(storekit.Take, charges, nil)
	require.NoError(t, err)
	full, _ := decide(t, storekit.Take, on("alice", each[2], 5), start, nil)
	denied, err := r.Decide(start, [][]byte{full.State})
	require.NoError(t, err)
	assert.Empty(t, denied)
	_, err = r.Decide(start, [][]byte{[]byte("garbage")})
	require.Error(t, err)
	var last []storekit.Record
	for range 3 {
		last, err = r.Decide(start, [][]byte{nil})
		require.NoError(t, err)
		require.Len(t, last, 1)
	}
	want, _ := decide(t, storekit.Take, on("alice", each[2], 2), start, nil)
	assert.Equal(t, want, last[0])
	assert.Equal(t, before, charges[0])
	charges[0].Cost = -99 // Prepare has its own copy
	assert.True(t, r.Finish(charges).Allowed())
	assert.Equal(t, int64(3), charges[0].Result.Remaining)
}

func TestRequest_DecideDoesNotChangeTheBytesItReads(t *testing.T) {
	for _, l := range each {
		record, charge := decide(t, storekit.Take, on("alice", l, 2), start, nil)
		kept := bytes.Clone(record.State)
		for _, v := range []storekit.Verb{storekit.Take, storekit.Peek, storekit.Settle} {
			c := charge
			c.Cost = 1
			decide(t, v, c, start.Add(time.Second), record.State)
			require.Equal(t, kept, record.State)
		}
	}
}

func TestPrepare_RefusesAnUnknownVerb(t *testing.T) {
	for _, v := range []storekit.Verb{0, storekit.Reset + 1} {
		_, err := storekit.Prepare(v, nil, nil)
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
	}
}

func TestRequest_DecideRefusesAnotherNumberOfStates(t *testing.T) {
	r, err := storekit.Prepare(storekit.Take, []limiter.Charge{on("alice", each[0], 1)}, nil)
	require.NoError(t, err)
	for _, states := range [][][]byte{nil, {nil, nil}} {
		_, err = r.Decide(start, states)
		require.ErrorContains(t, err, fmt.Sprintf("loaded %d accounts for 1 keys", len(states)))
	}
}

// An account keeps the latest instant at which it was written, so that another
// clock, or one that goes back, gives nothing back.
func TestRequest_TheClockNeverGoesBackForAnAccount(t *testing.T) {
	for _, l := range each {
		record, _ := decide(t, storekit.Take, on("alice", l, 4), start, nil)
		for _, back := range []time.Duration{1, time.Second, 20 * time.Second, 1 << 62} {
			_, c := decide(t, storekit.Peek, on("alice", l, 2), start.Add(-back), record.State)
			_, want := decide(t, storekit.Peek, on("alice", l, 2), start, record.State)
			assert.Equal(t, want.Result, c.Result)
		}
	}
}
