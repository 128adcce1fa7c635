package model

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ration-go/ration/limiter"
)

// Shape narrows what a [Generator] makes. The zero Shape is everything.
type Shape struct {
	Forward   bool // the clock never goes back
	OneLimit  bool // the limit of an account never changes
	OneKey    bool // one charge a request, always on the same account
	Decisions bool // takes and peeks only, no bad costs
	Reloads   bool // the limits are a few of one size, of all algorithms, and change often
	Still     bool // the clock stands still

	// For stores that cannot hold everything: limits that it accepts (nil: all),
	// and instants that are multiples of Step within Span of 1970 (0: all).
	Accepts    func(limiter.Limit) error
	Step, Span time.Duration
}

// Generator makes streams that are likely to find faults: it uses the last answer to
// step to both sides of waits and of window ends.
type Generator struct {
	r      *rand.Rand
	shape  Shape
	keys   []limiter.Key
	limits []limiter.Limit
	pool   []limiter.Limit // the limits of reloads
	shadow []bool          // by key
	now    int64
	latest int64
	last   Step
	takes  []Step
}

// NewGenerator returns a generator; the same source and shape make the same
// stream for the same answers.
func NewGenerator(src rand.Source, shape Shape) *Generator {
	g := &Generator{r: rand.New(src), shape: shape}
	if shape.Reloads {
		g.fillPool()
	}
	names := []string{"a1", "a2", "b1", "c1", "b2"}
	for _, name := range names[:1+g.r.IntN(len(names))] {
		g.keys = append(g.keys, NewKey(name[:1], name[1:]))
		g.limits = append(g.limits, g.limit())
		g.shadow = append(g.shadow, g.chance(5))
	}
	if shape.OneKey {
		g.keys, g.shadow[0] = g.keys[:1], false
	}
	starts := []int64{0, 1_790_000_000_123_456_789, -1, -1_790_000_000_123_456_789,
		math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - g.r.Int64N(1e12)}
	g.now = starts[g.r.IntN(len(starts))]
	g.latest = g.now
	return g
}

// chance is true once in n.
func (g *Generator) chance(n int) bool { return g.r.IntN(n) == 0 }

// upTo returns a number from 1 to n, of any magnitude.
func (g *Generator) upTo(n int64) int64 {
	bits := g.r.IntN(64)
	return 1 + min(g.r.Int64()>>bits, n-1)
}

// nasty are limits that have hurt limiters.
var nasty = []limiter.Limit{
	{Tokens: 999_983, Per: 24 * time.Hour},
	{Tokens: 1, Per: 876_600 * time.Hour},
	{Tokens: math.MaxInt64, Per: 1},
	{Tokens: math.MaxInt64, Per: 1, Burst: 1},
	{Tokens: math.MaxInt64, Per: 876_600 * time.Hour},
	{Tokens: math.MaxInt64, Per: 7, Burst: math.MaxInt64 - 1},
	{Tokens: 3, Per: 1, Burst: math.MaxInt64},
	{Tokens: 3, Per: 7},
	{Tokens: 625, Per: time.Hour, Burst: 1},
	{Tokens: 10, Per: time.Minute, Burst: 10},
	{Tokens: 1, Per: 1},
	{Algorithm: limiter.FixedWindow, Tokens: 3, Per: 7},
	{Algorithm: limiter.FixedWindow, Tokens: math.MaxInt64, Per: 876_600 * time.Hour},
	{Algorithm: limiter.FixedWindow, Tokens: 5, Per: 10 * time.Second, Burst: 5},
	{Algorithm: limiter.FixedWindow, Tokens: 1, Per: 1},
	{Algorithm: limiter.RollingLog, Tokens: 3, Per: 10 * time.Second},
	{Algorithm: limiter.RollingLog, Tokens: 10_000, Per: 876_600 * time.Hour},
	{Algorithm: limiter.RollingLog, Tokens: 7, Per: 10 * time.Second, Burst: 7},
	{Algorithm: limiter.RollingLog, Tokens: 10_000, Per: 1},
}

// fillPool makes the limits of reloads: small numbers, so that one limit's balance
// says something under another.
func (g *Generator) fillPool() {
	pers := []time.Duration{10 * time.Second, 3 * time.Second, time.Minute}
	for len(g.pool) < 9 {
		l := limiter.Limit{
			Algorithm: limiter.Algorithm(len(g.pool) % 3),
			Tokens:    1 + g.r.Int64N(20),
			Per:       pers[g.r.IntN(len(pers))],
		}
		if l.Algorithm == limiter.TokenBucket && g.chance(2) {
			l.Burst = 1 + g.r.Int64N(20)
		}
		g.pool = append(g.pool, l)
	}
}

func (g *Generator) limit() limiter.Limit {
	if g.pool != nil {
		return g.pool[g.r.IntN(len(g.pool))]
	}
	accepts := g.shape.Accepts
	if accepts == nil {
		accepts = limiter.Limit.Validate
	}
	for {
		if l := g.anyLimit(); accepts(l) == nil {
			return l
		}
	}
}

func (g *Generator) anyLimit() limiter.Limit {
	if g.chance(2) {
		return nasty[g.r.IntN(len(nasty))]
	}
	for {
		l := limiter.Limit{
			Algorithm: limiter.Algorithm(g.r.IntN(3)),
			Tokens:    g.upTo(math.MaxInt64),
			Per:       time.Duration(g.upTo(int64(876_600 * time.Hour))),
		}
		if g.shape.Step > 0 && !g.chance(8) {
			l.Per = max(l.Per.Truncate(g.shape.Step), g.shape.Step)
		}
		if l.Algorithm == limiter.TokenBucket && g.chance(2) {
			l.Burst = g.upTo(math.MaxInt64)
		}
		if l.Algorithm == limiter.RollingLog {
			l.Tokens = 1 + l.Tokens%10_000
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// Next returns the next step, after the answer to the last one.
func (g *Generator) Next(last limiter.Decision) Step {
	step := Step{ID: g.last.ID + 1, Op: Take}
	g.advance(last)
	step.At = g.instant()
	denied := last.Outcome == limiter.Deny && len(g.last.Charges) > 0
	switch {
	case denied && g.chance(2):
		step.Charges = g.last.Charges // the same request again
	case !g.shape.Decisions && len(g.takes) > 0 && g.chance(6):
		g.settle(&step)
	default:
		step.Charges = g.charges()
	}
	switch {
	case step.Op == Settle:
	case g.chance(6):
		step.Op = Peek
	case g.chance(60) && !g.shape.Decisions:
		step.Op = Reset
	default:
		g.takes = append(g.takes, step)
	}
	g.last = step
	return step
}

// instant returns now as the store can hold it.
func (g *Generator) instant() int64 {
	at := g.now
	if span := int64(g.shape.Span); span > 0 {
		at = max(-span, min(at, span))
	}
	if step := int64(g.shape.Step); step > 0 {
		at -= at % step
	}
	return at
}

// advance moves the clock.
func (g *Generator) advance(last limiter.Decision) {
	g.latest = max(g.latest, g.now)
	if g.shape.Still {
		return
	}
	limit := g.limits[g.r.IntN(len(g.limits))]
	per := int64(limit.Per)
	switch g.r.IntN(16) {
	case 0, 1, 2:
	case 3, 4, 5, 6:
		g.forward(int64(last.RetryAfter) + g.r.Int64N(3) - 1)
	case 7:
		g.forward(int64(last.ResetAfter) + g.r.Int64N(3) - 1)
	case 8, 9:
		g.forward(per/limit.Tokens + g.r.Int64N(2))
	case 10:
		g.forward(per)
	case 11:
		g.forward(g.r.Int64N(per))
	case 12:
		g.forward(g.upTo(1 << 20))
	case 13:
		g.forward(g.upTo(math.MaxInt64 >> g.r.IntN(30)))
	default:
		g.back()
	}
}

func (g *Generator) forward(ns int64) {
	g.now = g.latest
	switch {
	case ns <= 0:
	case g.now > math.MaxInt64-ns:
		if g.chance(20) {
			g.now = math.MaxInt64
		}
	default:
		g.now += ns
	}
}

func (g *Generator) back() {
	switch {
	case g.shape.Forward:
	case g.chance(8):
		g.now = math.MinInt64
	default:
		step := g.upTo(1 << (10 + 4*g.r.IntN(13)))
		g.now = max(g.now, math.MinInt64+step) - step
	}
}

func (g *Generator) charges() []limiter.Charge {
	n := 1
	if !g.shape.OneKey && g.chance(2) {
		n = 1 + g.r.IntN(4)
	}
	charges := make([]limiter.Charge, n)
	seen := map[limiter.Key]limiter.Limit{}
	for i := range charges {
		k := g.r.IntN(len(g.keys))
		c := limiter.Charge{Key: g.keys[k], Limit: g.limits[k], Shadow: g.shadow[k]}
		if !g.shape.OneLimit && g.chance(5) {
			c.Limit = g.limits[g.r.IntN(len(g.limits))]
			g.limits[k] = c.Limit
		}
		if g.pool != nil && g.chance(2) {
			c.Limit = g.limit()
			g.limits[k] = c.Limit
		}
		if limit, ok := seen[c.Key]; ok && !g.chance(20) {
			c.Limit = limit
		}
		seen[c.Key] = c.Limit
		c.Cost = g.cost(c.Limit)
		charges[i] = c
	}
	return charges
}

func (g *Generator) cost(l limiter.Limit) int64 {
	capacity := l.Capacity()
	switch g.r.IntN(12) {
	case 0:
		return 0
	case 1:
		return capacity
	case 2:
		return min(capacity, math.MaxInt64-1) + 1
	case 3:
		return 1 + g.r.Int64N(capacity)
	case 4:
		return (capacity + 1) / 2
	case 5, 6:
		return max(1, capacity/int64(2+g.r.IntN(6)))
	case 7:
		if g.chance(20) && !g.shape.Decisions {
			return -g.upTo(math.MaxInt64)
		}
		return g.upTo(capacity)
	default:
		return 1 + min(g.r.Int64N(3), capacity-1)
	}
}

// settle makes step correct one of the last takes, sometimes twice.
func (g *Generator) settle(step *Step) {
	back := 8
	if g.chance(3) {
		back = 60 // windows that ended and entries that left long ago
	}
	take := g.takes[max(0, len(g.takes)-1-g.r.IntN(back))]
	step.Op, step.Of = Settle, take.ID
	for _, c := range take.Charges {
		correction := int64(0)
		switch cost := max(c.Cost, 0); g.r.IntN(6) {
		case 0:
			correction = -cost
		case 1:
			correction = -g.r.Int64N(max(cost, 1))
		case 2:
			correction = g.cost(c.Limit)
		case 3:
			correction = g.upTo(c.Limit.Capacity())
		case 4:
			correction = min(c.Limit.Capacity(), math.MaxInt64/2) * 2
		default:
			if g.chance(20) {
				correction = -cost - 1
			}
		}
		step.Corrections = append(step.Corrections, correction)
	}
}

// Bytes is a rand.Source that reads bytes, for fuzzing. When they are used up it
// counts, since some of package rand's loops wait for another number.
type Bytes struct {
	data []byte
	used uint64
}

// NewBytes returns a source of data.
func NewBytes(data []byte) *Bytes { return &Bytes{data: data} }

// Uint64 returns a number whose top bytes are the next two.
func (b *Bytes) Uint64() uint64 {
	b.used++
	if len(b.data) < 2 {
		return b.used * 0x9e3779b97f4a7c15
	}
	n := uint64(b.data[0])<<56 | uint64(b.data[1])<<48
	b.data = b.data[2:]
	return n | b.used
}
