package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
)

// Law is a change of a stream that must not change the answers to what stays of
// it. The clock of the stream never goes back.
type Law struct {
	Name     string
	OneLimit bool // holds for streams in which no limit changes
	// Change returns the changed stream; answers are those of the original, by
	// step ID. Steps that it adds have the ID 0.
	Change func(r *rand.Rand, s Stream, answers map[int]Answer) Stream
}

// Answer is what a store said to one step.
type Answer struct {
	Decision limiter.Decision
	Results  map[limiter.Key]limiter.Result
	Full     bool // the account of the step's first charge was full before it
}

// Laws are the metamorphic laws of a store.
var Laws = []Law{
	{Name: "a time step is split", Change: split},
	{Name: "refused requests are removed", OneLimit: true, Change: removeRefused},
	{Name: "the charges of a request are permuted", Change: permute},
	{Name: "equal limits are reloaded", Change: respell},
	{Name: "full accounts are dropped", OneLimit: true, Change: dropFull},
}

// split asks in between, without taking.
func split(r *rand.Rand, s Stream, _ map[int]Answer) Stream {
	var changed Stream
	for i, step := range s {
		if i > 0 && step.Op != Settle {
			span := max(0, step.At-s[i-1].At) // 0 where it is too long for an int64
			between := Step{Op: Peek, At: s[i-1].At + span/int64(1+r.IntN(5))}
			between.Charges = step.Charges
			if r.IntN(2) == 0 {
				between.Op, between.Charges = Take, slices.Clone(step.Charges)
				for j := range between.Charges {
					between.Charges[j].Cost = 0
				}
			}
			changed = append(changed, between)
		}
		changed = append(changed, step)
	}
	return changed
}

func removeRefused(_ *rand.Rand, s Stream, answers map[int]Answer) Stream {
	return slices.DeleteFunc(slices.Clone(s), func(step Step) bool {
		return step.Op == Take && !answers[step.ID].Decision.Allowed()
	})
}

// permute leaves settled takes alone: corrections go by position.
func permute(r *rand.Rand, s Stream, _ map[int]Answer) Stream {
	settled := map[int]bool{}
	for _, step := range s {
		settled[step.Of] = true
	}
	changed := slices.Clone(s)
	for i := range changed {
		if !settled[changed[i].ID] {
			c := slices.Clone(changed[i].Charges)
			r.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
			changed[i].Charges = c
		}
	}
	return changed
}

func respell(r *rand.Rand, s Stream, _ map[int]Answer) Stream {
	changed := slices.Clone(s)
	for i := range changed {
		changed[i].Charges = slices.Clone(changed[i].Charges)
		for j := range changed[i].Charges {
			l := &changed[i].Charges[j].Limit
			switch {
			case r.IntN(2) == 0:
			case l.Burst == 0:
				l.Burst = l.Tokens
			case l.Burst == l.Tokens:
				l.Burst = 0
			}
		}
	}
	return changed
}

func dropFull(_ *rand.Rand, s Stream, answers map[int]Answer) Stream {
	var changed Stream
	for _, step := range s {
		if answers[step.ID].Full {
			changed = append(changed, Step{Op: Reset, At: step.At, Charges: step.Charges[:1]})
		}
		changed = append(changed, step)
	}
	return changed
}

// Obeys makes a stream of so many steps and reports where the law does not hold.
func (law Law) Obeys(f Factory, seed uint64, steps int) error {
	g := NewGenerator(rand.NewPCG(seed, 1), Shape{Forward: true, OneLimit: law.OneLimit})
	var s Stream
	var last limiter.Decision
	p := newPlayer(f)
	for range steps {
		s = append(s, g.Next(last))
		last = p.play(s[len(s)-1]).Decision
	}
	changed := law.Change(rand.New(rand.NewPCG(seed, 2)), s, p.answers)
	again := newPlayer(f)
	for _, step := range changed {
		got, want := again.play(step), p.answers[step.ID]
		if step.ID != 0 && step.Op != Settle && !got.same(want) {
			return fmt.Errorf("%s: step %v got %+v\nwant %+v\nin the stream\n%v",
				law.Name, Stream{step}, got, want, changed)
		}
	}
	return nil
}

func (a Answer) same(other Answer) bool {
	if a.Decision != other.Decision || len(a.Results) != len(other.Results) {
		return false
	}
	for k, r := range a.Results {
		if r != other.Results[k] {
			return false
		}
	}
	return true
}

// player plays streams to a store and keeps its answers.
type player struct {
	store   limiter.Store
	clock   int64
	takes   map[int][]limiter.Charge
	answers map[int]Answer
}

func newPlayer(f Factory) *player {
	p := &player{takes: map[int][]limiter.Charge{}, answers: map[int]Answer{}}
	p.store = f(func() time.Time { return clockTime(p.clock) })
	return p
}

func (p *player) play(s Step) Answer {
	ctx := context.Background()
	p.clock = s.At
	a := Answer{Full: p.full(s), Results: map[limiter.Key]limiter.Result{}}
	charges := slices.Clone(s.Charges)
	switch s.Op {
	case Take:
		a.Decision, _ = p.store.Take(ctx, charges)
		p.takes[s.ID] = charges
	case Peek:
		a.Decision, _ = p.store.Peek(ctx, charges)
	case Settle:
		taken := p.takes[s.Of]
		var corrected []limiter.Charge
		for n, i := range withReceipt(taken) {
			corrected = append(corrected, taken[i])
			corrected[n].Cost = s.correction(n)
			taken[i].Receipt = limiter.Receipt{}
		}
		_ = p.store.Settle(ctx, corrected)
	case Reset:
		if store, ok := p.store.(resetter); ok {
			_ = store.Reset(ctx, charges)
		}
	}
	a.Decision.Limit = oracle.Normal(a.Decision.Limit)
	for _, c := range charges {
		a.Results[c.Key] = c.Result
	}
	p.answers[s.ID] = a
	return a
}

// full reports whether the account of the first charge is full.
func (p *player) full(s Step) bool {
	if len(s.Charges) == 0 {
		return false
	}
	c := slices.Clone(s.Charges[:1])
	c[0].Cost = 0
	_, err := p.store.Peek(context.Background(), c)
	return err == nil && c[0].Result.Remaining == c[0].Limit.Capacity()
}
