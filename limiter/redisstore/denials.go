package redisstore

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/internal/pick"
	"github.com/ration-go/ration/limiter"
)

// denials remembers the accounts of requests that were denied, so that a caller that
// asks again at once costs the server nothing. It keeps no strings and has a fixed
// number of places. All instants are nanoseconds of the store's clock, unless they
// are the server's. A nil *denials remembers nothing.
type denials struct {
	keep, lead int64        // how long a state is good for, and how long before that one request asks
	clock      func() int64 // for tests, of which Config.Now is the server's clock; else nil
	seeds      [2]maphash.Seed
	hits       atomic.Int64
	sets       [sets][places]place // read without a lock

	mu       sync.Mutex // guards what follows, and writing to sets
	count    int64      // draws that were started
	free     *group     // to be used again
	inFlight [sets]struct {
		first *group
		late  int64 // until when calls without a reply may still run
	}
}

const (
	sets   = 1 << 10
	places = 8 // in a set: states whose marks begin with the same bits
	// mostCharges is how many charges a request has at most that is denied from memory.
	mostCharges = 16
	// longestMemory is the longest that a state is remembered.
	longestMemory = time.Second
)

// mark stands for a key. Keys of the same mark are one account here: callers cannot
// find two, because the seeds are random.
type mark [2]uint64

// place holds a state and a part of its mark.
type place struct {
	tag   atomic.Uint64
	state atomic.Pointer[state]
}

// state is an account as a reply has shown it. It is immutable but for claimed.
type state struct {
	mark  mark
	limit limiter.Limit // normalised
	rule  rule
	used  int64 // in units
	at    int64 // its instant, in microseconds
	clock int64 // what the server's clock read, in microseconds
	// sure says that the server counts the account under this limit. An account that
	// could pay, in a request that another denied, may still be under an older one,
	// and gain more by that.
	sure bool

	cost, wait, reset int64 // of a rolling log: whoever pays cost is refused for wait microseconds

	sent     int64 // when its call was written: the account gains from then on at most
	received int64 // when the reply had come: from then on at least, if its instant has come too

	claimed atomic.Bool // a request asks, to renew it
}

// pending is a draw of a line, from when its call is made until it has ended.
type pending struct {
	mark   mark
	limit  limiter.Limit // normalised
	verb   verb
	group  *group // while it is in flight
	number int64  // in the order of starts
	other  bool   // it counts in group.others
}

// group is the draws on one account that are in flight. There may be a thousand, so none
// is compared with each other.
type group struct {
	mark  mark
	limit limiter.Limit
	// same counts takes and peeks under limit, others those under another limit, and
	// changes counts settles and resets.
	same, others, changes int
	// disturbed is the last draw that was in flight together with a change or with draws
	// under two limits. Nothing is learnt from it and from those before it.
	disturbed int64
	next      *group
}

// newDenials returns a memory for so long, or nil if that is negative.
func newDenials(keep, timeout time.Duration) *denials {
	if keep < 0 {
		return nil
	}
	return &denials{
		keep: int64(keep), lead: int64(min(timeout, keep/2)),
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

func (d *denials) mark(key *limiter.Key) mark {
	return mark{maphash.Comparable(d.seeds[0], *key), maphash.Comparable(d.seeds[1], *key)}
}

// pending returns what a charge will be while it is in a call.
func (d *denials) pending(v verb, c *limiter.Charge) (f pending) {
	if d != nil {
		f = pending{verb: v, mark: d.mark(&c.Key), limit: normalised(c.Limit)}
	}
	return f
}

func normalised(l limiter.Limit) limiter.Limit {
	l.Burst = l.Capacity()
	return l
}

// find returns the state of a mark, or nil.
func (d *denials) find(m mark) *state {
	set := &d.sets[m[0]%sets]
	for i := range set {
		if set[i].tag.Load() == m[1] {
			if s := set[i].state.Load(); s != nil && s.mark == m {
				return s
			}
		}
	}
	return nil
}

// deny answers a take from memory: if all enforced accounts are remembered under their
// limits, and one of them cannot pay. If it reports false, the server is to be asked,
// and the charges are as they were.
//
// If a shadow account is not remembered, one request asks, and it is full for the others:
// it must not make all of them ask.
func (d *denials) deny(charges []limiter.Charge, now int64) (decision limiter.Decision, ok bool) {
	if d == nil || len(charges) > mostCharges {
		return decision, false
	}
	var marks [mostCharges]mark
	var states [mostCharges]*state
	for i := range charges {
		c := &charges[i]
		marks[i] = d.mark(&c.Key)
		s := d.find(marks[i])
		if s != nil && now-s.sent >= d.keep {
			s = nil
		}
		if s == nil && (!c.Shadow || d.invalid(c.Limit)) || s != nil && s.limit != normalised(c.Limit) {
			return decision, false
		}
		states[i] = s
	}
	var costs [mostCharges]int64
	var outcomes [mostCharges]limiter.Outcome
	refused, missing := false, false
	for i := range charges {
		c := &charges[i]
		costs[i] = c.Cost
		for j := range charges {
			if j == i || marks[j] != marks[i] {
				continue
			}
			if charges[j].Shadow != c.Shadow || charges[j].Limit != c.Limit {
				return decision, false
			}
			costs[i] += min(charges[j].Cost, math.MaxInt64-costs[i])
		}
		s, known := states[i], true
		if outcomes[i] = limiter.Allow; s != nil {
			outcomes[i], known = s.judge(costs[i], now)
		} else if costs[i] > c.Limit.Capacity() {
			outcomes[i] = limiter.Never
		}
		if !known && !c.Shadow {
			return decision, false
		} else if !known {
			if states[i] = nil; outcomes[i] == limiter.Deny {
				outcomes[i] = limiter.Allow
			}
		}
		missing = missing || states[i] == nil
		refused = refused || !c.Shadow && outcomes[i] != limiter.Allow
	}
	if !refused || d.claim(states[:len(charges)], now, missing) {
		return decision, false
	}
	var p pick.Picker
	for i := range charges {
		c := &charges[i]
		c.Receipt = limiter.Receipt{}
		if s := states[i]; s != nil {
			used, result := s.result(outcomes[i], costs[i], now)
			c.Result = result
			p.Offer(c, wide(used), wide(s.rule.units()))
		} else {
			c.Result = limiter.Result{Outcome: outcomes[i], Remaining: c.Limit.Capacity()}
		}
	}
	p.Decide(&decision)
	d.hits.Add(1)
	return decision, true
}

func (d *denials) invalid(l limiter.Limit) bool {
	_, err := newRule(l)
	return err != nil
}

// claim reports whether the request is to ask, so that the states are renewed before
// they are too old: one request for each state, in the last part of its time, or if
// the state of a shadow account is missing.
func (d *denials) claim(states []*state, now int64, missing bool) (claimed bool) {
	for _, s := range states {
		if s != nil && (missing || now-s.sent >= d.keep-d.lead) && s.claimed.CompareAndSwap(false, true) {
			claimed = true
		}
	}
	return claimed
}

// judge returns what becomes of a cost, and whether that is known: whoever is denied
// could not pay, even if the clocks differ by 0.1 %.
func (s *state) judge(cost, now int64) (o limiter.Outcome, known bool) {
	gone := s.most(now)
	used, _ := s.after(gone)
	o = s.rule.judge(used, cost)
	switch {
	case s.rule.kind == limiter.RollingLog && o == limiter.Never:
		return o, false
	case o != limiter.Deny:
		return o, true
	case s.rule.kind == limiter.RollingLog && (cost != s.cost || s.wait <= gone):
		return o, false
	default:
		return o, s.sure
	}
}

// most returns how much time has passed for the account at most, in microseconds. A
// request may have read the clock before the call was sent.
func (s *state) most(now int64) int64 {
	gone := max(now-s.sent, 0)
	return (gone+gone/1000)/1000 + 2
}

// least returns how much time has passed for the account at least, in microseconds.
func (s *state) least(now int64) int64 {
	return max((now-s.received)/1000-max(s.at-s.clock, 0), 0)
}

// after returns what is used so many microseconds later, and the instant. Of a log it is
// the most that can be used, since only its last entry is known.
func (s *state) after(gone int64) (used, at int64) {
	used, at = s.used, s.at+gone
	switch s.rule.kind {
	case limiter.TokenBucket:
		if gone > used/s.rule.n {
			return 0, at
		}
		used -= s.rule.n * gone
	case limiter.FixedWindow:
		if micros(gone) >= s.rule.left(s.at) {
			used = 0
		}
	default:
		if gone >= s.reset {
			used = 0
		}
	}
	return used, at
}

// result returns the account as it is now, with what it has at least, unless the outcome
// wants more.
func (s *state) result(o limiter.Outcome, cost, now int64) (used int64, r limiter.Result) {
	gone := s.least(now)
	used, at := s.after(gone)
	if s.rule.judge(used, cost) != o {
		gone = s.most(now)
		used, at = s.after(gone)
	}
	d := draw{rule: s.rule, used: used, at: at, reset: max(s.reset-gone, 0)}
	return used, d.result(o, used, &runDraw{cost: cost, wait: s.wait - gone})
}

// started notes the lines of a call that is made. What they change of accounts is
// forgotten, and not remembered from other calls that are in flight with them.
func (d *denials) started(lines []*line) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range lines {
		for j := range l.draws {
			f := &l.draws[j].pending
			d.join(f)
			if s := d.find(f.mark); s != nil && (f.verb > take || f.verb == take && s.limit != f.limit) {
				d.forget(s)
			}
		}
	}
}

// join adds a draw to those in flight.
func (d *denials) join(f *pending) {
	in := &d.inFlight[f.mark[0]%sets]
	g := in.first
	for g != nil && g.mark != f.mark {
		g = g.next
	}
	if g == nil {
		if g = d.free; g != nil {
			d.free = g.next
		} else {
			g = new(group)
		}
		*g = group{mark: f.mark, next: in.first}
		in.first = g
	}
	if g.same == 0 {
		g.limit = f.limit
	}
	d.count++
	f.group, f.number, f.other = g, d.count, f.limit != g.limit
	*g.counter(f)++
	if g.others+g.changes > 0 {
		g.disturbed = f.number
	}
}

// leave takes a draw out of those in flight, and reports whether it was disturbed.
func (d *denials) leave(f *pending) (disturbed bool) {
	g := f.group
	f.group = nil
	*g.counter(f)--
	if g.same+g.others+g.changes == 0 {
		at := &d.inFlight[f.mark[0]%sets].first
		for *at != g {
			at = &(*at).next
		}
		*at = g.next
		g.next, d.free = d.free, g
	}
	return f.number <= g.disturbed
}

// counter returns the count that a draw adds to.
func (g *group) counter(f *pending) *int {
	switch {
	case f.verb > take:
		return &g.changes
	case f.other:
		return &g.others
	default:
		return &g.same
	}
}

// ended notes that a call has ended, and learns from its reply, if there is one. errs
// has an error for each line.
func (d *denials) ended(b *call, o *outcome, errs []error) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, l := range b.lines {
		var denied bool
		if o.err == nil && errs[i] == nil && l.verb <= take {
			denied = l.denied()
		}
		for j := range l.draws {
			dr := &l.draws[j]
			in := &d.inFlight[dr.pending.mark[0]%sets]
			disturbed := d.leave(&dr.pending)
			switch old := d.find(dr.pending.mark); {
			case !o.replied():
				in.late = max(in.late, b.ends)
			case o.err != nil || l.verb > take:
			case errs[i] != nil:
				d.forget(old)
			case disturbed || b.written <= in.late:
				d.forget(old) // which may not have this debit
			default:
				d.learn(old, d.stateOf(b, o, l, j), l.verb == take && denied)
			}
		}
	}
}

// denied reports whether a request of the line was denied.
func (l *line) denied() bool {
	for _, r := range l.runs {
		for j := range r.draws {
			if d := &l.draws[j]; !d.shadow && r.draws[j].fits(&d.rule) < r.count {
				return true
			}
		}
	}
	return false
}

// stateOf returns what a reply says of an account, after its line.
func (d *denials) stateOf(b *call, o *outcome, l *line, j int) *state {
	dr := &l.draws[j]
	s := &state{
		mark: dr.pending.mark, limit: dr.pending.limit, rule: dr.rule,
		used: dr.used, at: dr.at, clock: o.clock, reset: dr.reset,
		sent: b.written, received: b.written + o.took,
	}
	if d.clock != nil {
		s.clock, s.sent, s.received = l.instant, l.instant*1000, d.clock()
	}
	for _, r := range l.runs {
		h := &r.draws[j]
		if h.debits > 0 {
			s.used, s.reset = h.used+h.debits*h.cost*dr.rule.p, dr.rule.n
			s.cost, s.wait, s.sure = 0, 0, true
		}
		if h.refuses(&dr.rule, r.count) {
			s.cost, s.wait, s.sure = h.cost, h.wait, s.sure || l.verb == take
		}
	}
	return s
}

// learn replaces what is remembered of an account, unless that is newer. Only a request
// that was denied makes a state of an account that has none.
func (d *denials) learn(old, s *state, denied bool) {
	if old != nil && s.received-old.sent < d.keep {
		if s.clock < old.clock || s.clock == old.clock && s.used < old.used {
			return
		}
		if s.limit == old.limit {
			s.sure = s.sure || old.sure
			denied = true
		}
	}
	if denied {
		d.forget(old)
		d.put(s)
	}
}

// put finds a place for a state: a free one, or that of the oldest.
func (d *denials) put(s *state) {
	set := &d.sets[s.mark[0]%sets]
	oldest, sent := 0, int64(math.MaxInt64)
	for i := range set {
		other := set[i].state.Load()
		if other == nil {
			oldest = i
			break
		}
		if other.sent < sent {
			oldest, sent = i, other.sent
		}
	}
	set[oldest].tag.Store(s.mark[1])
	set[oldest].state.Store(s)
}

// forget removes a state, if there is one.
func (d *denials) forget(s *state) {
	if s == nil {
		return
	}
	set := &d.sets[s.mark[0]%sets]
	for i := range set {
		if set[i].state.Load() == s {
			set[i].state.Store(nil)
		}
	}
}
