package redisstore

import (
	"time"

	"github.com/ration-go/ration/internal/breaker"
	"github.com/ration-go/ration/limiter"
)

// Most is the most units that an account can have used.
const Most = most

// Unit returns how many units a token of the limit has.
func Unit(l limiter.Limit) int64 {
	r, err := newRule(l)
	if err != nil {
		panic(err)
	}
	return r.p
}

// KeysOf returns the names of the keys, as one request writes them.
func (s *Store) KeysOf(all []limiter.Key) []string {
	names, texts := s.keys.namer(), make([]string, len(all))
	for i, key := range all {
		texts[i] = names.text(key)
	}
	return texts
}

// Waiting returns how many requests wait for a call.
func (s *Store) Waiting() (n int) {
	s.combiner.mu.Lock()
	defer s.combiner.mu.Unlock()
	s.combiner.queue.each(func(l *line) {
		for _, r := range l.runs {
			n += int(r.count)
		}
	})
	return n
}

// Bound sets how many lines may wait, in all and of one owner, and how much work goes
// into a batch.
func (s *Store) Bound(places, perOwner, work int) {
	q := &s.combiner.queue
	q.places, q.perOwner, q.work = places, perOwner, work
}

// Slots sets how many calls may be in flight.
func (s *Store) Slots(n int) { s.combiner.maxSlots = n }

// Open reports whether the breaker is open.
func (s *Store) Open() bool { return s.combiner.breaker.Open() }

// NeverOpen makes the breaker one that never opens, for tests of what waits and what
// is lost while a server hangs.
func (s *Store) NeverOpen() {
	s.combiner.breaker = breaker.New(1000 * time.Hour)
}

// RoundTrip returns the smoothed round trip.
func (s *Store) RoundTrip() time.Duration {
	s.combiner.mu.Lock()
	defer s.combiner.mu.Unlock()
	return time.Duration(s.combiner.rtt)
}

// RememberBy makes the store remember denials by a clock that is also Config.Now.
func (s *Store) RememberBy(now func() time.Time) {
	d := newDenials(longestMemory, time.Millisecond)
	d.clock = func() int64 { return now().UnixNano() }
	s.combiner.denials = d
}

// Memory is a memory of denials alone.
type Memory struct{ denials *denials }

// NewMemory returns an empty memory.
func NewMemory() Memory { return Memory{newDenials(longestMemory, time.Millisecond)} }

// Learn remembers that the account is used up.
func (m Memory) Learn(key limiter.Key, l limiter.Limit) {
	r, err := newRule(l)
	if err != nil {
		panic(err)
	}
	mark := m.denials.mark(&key)
	m.denials.learn(m.denials.find(mark), &state{mark: mark, limit: normalised(l), rule: r, used: r.units()}, true)
}

// Len returns how many accounts are remembered.
func (m Memory) Len() (n int) {
	for i := range m.denials.sets {
		for j := range m.denials.sets[i] {
			if m.denials.sets[i][j].state.Load() != nil {
				n++
			}
		}
	}
	return n
}
