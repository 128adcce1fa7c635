package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// FuzzDecisions turns bytes into requests and compares the answers with the
// model, of a store in memory and of a Bucket.
func FuzzDecisions(f *testing.F) {
	f.Add([]byte("one after the other, at one instant"))
	f.Add([]byte{0xff, 0x80, 0x00, 0x7f, 0x01, 0xc3, 0x55, 0xaa, 0x10, 0xee, 0x42, 0x91})
	inMemory := func(now func() time.Time) limiter.Store {
		return limiter.Must(memstore.New(memstore.Config{Now: now}))
	}
	bucket := func(now func() time.Time) limiter.Store { return &bucketStore{now: now} }
	single := model.Shape{OneKey: true, OneLimit: true, Decisions: true}
	f.Fuzz(func(t *testing.T, data []byte) {
		steps := min(len(data)/8, 200)
		require.NoError(t, model.Check(inMemory,
			model.NewGenerator(model.NewBytes(data), model.Shape{}), steps))
		require.NoError(t, model.Check(bucket,
			model.NewGenerator(model.NewBytes(data), single), steps))
	})
}

// FuzzLimitText reads any text. What is a limit is valid and reads as it writes.
func FuzzLimitText(f *testing.F) {
	for _, text := range []string{"100/1m", "100/1m burst=20", "3/10s fixed-window",
		"7/1h0m1s rolling-log burst=7", "unlimited", "blocked", "9223372036854775807/1ns",
		"1/876600h", "1/1.5µs", "+1/1us", "0x10/1s", "1/1m burst=1 burst=1",
		"100/day", "100/m", "600/1m burst=0", "100 / 1m", "5/99999999999999999999weeks"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l limiter.Limit
		if err := l.UnmarshalText([]byte(text)); err != nil {
			var config *limiter.ConfigError
			require.ErrorAs(t, err, &config)
			require.Zero(t, l)
			require.Contains(t, config.Reason, "want ")
			return
		}
		written, err := l.MarshalText()
		require.NoError(t, err)
		var again limiter.Limit
		require.NoError(t, again.UnmarshalText(written), "%q", written)
		assert.Equal(t, l, again)
	})
}
