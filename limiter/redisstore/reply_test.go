package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/redisstore"
	"github.com/ration-go/ration/limiter/storekit"
)

// replying is a client of a server that always replies with these numbers: the clock,
// those of one line without an error, and how many anchors were set back.
type replying []float64

func (r replying) Process(_ context.Context, cmd redis.Cmder) error {
	var text []byte
	for i, number := range r {
		if i == 1 {
			text = append(text, 0)
		}
		text = binary.LittleEndian.AppendUint64(text, math.Float64bits(number))
	}
	cmd.(interface{ SetVal(any) }).SetVal(string(text))
	return nil
}

const clock = 1_800_000_000e6 // of the server, in microseconds

// refusedReply requires that a call failed since the reply is no answer.
func refusedReply(t *testing.T, err error, reply replying) {
	t.Helper()
	var store *limiter.StoreError
	require.ErrorAs(t, err, &store, "%v", reply)
	require.ErrorContains(t, err, "which is no answer", "%v", reply)
}

func TestTake_AReplyThatTheScriptCannotHaveMadeIsAnError(t *testing.T) {
	const minute = 60e6
	lies := map[string]float64{
		"a negative number": -1, "a small negative number": -math.SmallestNonzeroFloat64,
		"no number": math.NaN(), "infinity": math.Inf(1), "minus infinity": math.Inf(-1),
		"a fraction": 0.5, "above 2^53": 1 << 54, "far below 0": -1 << 60,
	}
	for _, test := range []struct {
		limit limiter.Limit
		cost  int64
		good  replying // clock, used, at, and for a log reset and wait; healed
		lies  map[int][]float64
	}{
		{each[0], 1, replying{clock, 2e6, clock, 1},
			map[int][]float64{2: {clock - 1, clock + minute + 1}, 3: {2}}},
		{each[1], 1, replying{clock, 2, clock + minute, 0},
			map[int][]float64{2: {clock - 1, clock + minute + 1}, 3: {2}}},
		{each[2], 1, replying{clock, 2, clock, 1e7, 0, 1},
			map[int][]float64{2: {clock - 1}, 3: {0, 1e7 + 1}, 4: {1e7 + 1}, 5: {2}}},
		{each[2], 4, replying{clock, 2, clock, 1, 1, 1},
			map[int][]float64{3: {0, 1e7 + 1}, 4: {0, 1e7 + 1}}},
	} {
		for _, peeks := range []bool{false, true} {
			good := test.good
			if peeks {
				good = append(good[:len(good)-1:len(good)-1], 0) // changes nothing
			}
			ask := func(reply replying) error {
				s := newStore(t, reply, redisstore.Config{Timeout: patient})
				call := s.Take
				if peeks {
					call = s.Peek
				}
				_, err := call(t.Context(), on("alice", test.limit, test.cost))
				if err != nil {
					assert.Zero(t, s.Stats().Reanchored, "%v", reply)
				}
				return err
			}
			require.NoError(t, ask(good))
			refusedReply(t, ask(append(good, 0)), append(good, 0))
			refusedReply(t, ask(good[:len(good)-1]), good)
			for i := range good {
				wrong := test.lies[i]
				for _, lie := range lies {
					wrong = append(wrong, lie)
				}
				for _, lie := range wrong {
					reply := append(replying(nil), good...)
					reply[i] = lie
					refusedReply(t, ask(reply), reply)
				}
			}
		}
	}
}

func TestTake_AReplyOfAnotherInstantThanTheUsersIsAnError(t *testing.T) {
	const now = -5e6
	for at, good := range map[float64]bool{now: true, now - 1: false, clock: false} {
		s := newStore(t, replying{clock, 2e6, at, 0}, redisstore.Config{
			Timeout: patient, Now: func() time.Time { return time.UnixMicro(now) },
		})
		_, err := s.Take(t.Context(), on("alice", each[0], 1))
		assert.Equal(t, good, err == nil, fmt.Sprint(at, err))
	}
}

func TestSettle_AReplyThatTheScriptCannotHaveMadeIsAnErrorAndConsumesTheReceipts(t *testing.T) {
	for _, reply := range []replying{
		{clock, -1}, {clock, 2}, {clock, math.NaN()}, {clock, 0, 0}, {clock, 0.5},
	} {
		charges := on("alice", each[0], 1)
		charges[0].Receipt = limiter.Receipt{Taken: 1, Valid: true}
		s := newStore(t, reply, redisstore.Config{Timeout: patient})
		err := s.Settle(t.Context(), charges)
		refusedReply(t, err, reply)
		failed(t, err, storekit.Ambiguous)
		assert.Zero(t, charges[0].Receipt)
		assert.Zero(t, s.Stats().Reanchored)
	}
}

func TestReset_AReplyThatTheScriptCannotHaveMadeIsAnError(t *testing.T) {
	for _, reply := range []replying{{clock, 1}, {clock, -1}, {clock, 0, 0}, {-1, 0}} {
		s := newStore(t, reply, redisstore.Config{Timeout: patient})
		refusedReply(t, s.Reset(t.Context(), on("alice", each[0], 0)), reply)
	}
	s := newStore(t, replying{clock, 0}, redisstore.Config{Timeout: patient})
	require.NoError(t, s.Reset(t.Context(), on("alice", each[0], 0)))
}
