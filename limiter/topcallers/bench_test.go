package topcallers_test

import (
	"math/rand"
	"strconv"
	"testing"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/topcallers"
)

// callers returns principals that differ.
func callers(n int) []*limiter.Principal {
	all := make([]*limiter.Principal, n)
	for i := range all {
		all[i] = &limiter.Principal{Kind: "user", ID: "account-" + strconv.Itoa(i)}
	}
	return all
}

// zipf returns a stream of principals of whom a few send most.
func zipf(s float64, seed int64, length, n int) []*limiter.Principal {
	all := callers(n)
	random := rand.NewZipf(rand.New(rand.NewSource(seed)), s, 1, uint64(n-1))
	stream := make([]*limiter.Principal, length)
	for i := range stream {
		stream[i] = all[random.Uint64()]
	}
	return stream
}

// allowed is a request that one budget has allowed.
func allowed(c limiter.Caller) limiter.DecisionEvent {
	limit := limiter.PerMinute(10)
	return limiter.DecisionEvent{
		Limiter: "api", Caller: c, Cost: 1,
		Decision: limiter.Decision{Outcome: limiter.Allow, Budget: "user", Limit: limit, Remaining: 9},
		Charges: []limiter.Charge{{Key: limiter.Key{Budget: "user", Principal: c.Principal},
			Limit: limit, Cost: 1, Result: limiter.Result{Outcome: limiter.Allow, Remaining: 9}}},
	}
}

func BenchmarkDecided(b *testing.B) {
	for _, tt := range []struct {
		name   string
		stream []*limiter.Principal
	}{
		{"zipf=1.5", zipf(1.5, 1, 1<<18, 100_000)},
		{"zipf=1.1", zipf(1.1, 1, 1<<18, 100_000)},
		{"flood", callers(1 << 18)},
		{"spread", spread()},
	} {
		b.Run(tt.name, func(b *testing.B) {
			o := limiter.Must(topcallers.New(topcallers.Config{})).Observer()
			ctx, e, i := b.Context(), allowed(limiter.Caller{}), 0
			b.ReportAllocs()
			for b.Loop() {
				e.Caller.Principal = *tt.stream[i%len(tt.stream)]
				o.Decided(ctx, e)
				i++
			}
		})
		b.Run(tt.name+"/parallel", func(b *testing.B) {
			o := limiter.Must(topcallers.New(topcallers.Config{})).Observer()
			ctx := b.Context()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				e := allowed(limiter.Caller{})
				for i := rand.Intn(len(tt.stream)); pb.Next(); i++ {
					e.Caller.Principal = *tt.stream[i%len(tt.stream)]
					o.Decided(ctx, e)
				}
			})
		})
	}
}

// spread returns a stream in which the counts of a full ranking differ much, and after
// that each caller comes twice, so that a search for the least count always looks at all.
func spread() []*limiter.Principal {
	var stream []*limiter.Principal
	all := callers(1 << 17)
	for i, p := range all[:512] {
		for range i {
			stream = append(stream, p)
		}
	}
	for _, p := range all[512:] {
		stream = append(stream, p, p)
	}
	return stream
}
