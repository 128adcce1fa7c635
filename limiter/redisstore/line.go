package redisstore

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// verb is what a request does to its accounts.
type verb byte

const (
	peek verb = iota
	take
	settle
	reset
)

// line is a part of a batch: all requests that are the same but for their costs. It
// is built by one goroutine, then guarded by the lock of the queue, and immutable
// when its waiters have been answered.
type line struct {
	verb    verb
	instant int64 // of the requests, in microseconds, if the clock is the user's
	charges []limiter.Charge
	draws   []draw
	of      []int // the draw of each charge; nil if each has its own
	logs    int   // how many draws are rolling logs
	hash    uint64
	owner   owner
	runs    []*run
	size    int // bytes in a command, without the runs

	next *line // in the queue
	same *line // with the same hash

	one struct { // where the slices of most lines are: of one account, and one run
		charge  [1]limiter.Charge
		draw    [1]draw
		runs    [1]*run
		run     run
		runDraw [1]runDraw
	}
}

// draw is what the requests of a line draw on one account.
type draw struct {
	name    string // of the server's key
	rule    rule
	shadow  bool
	taken   int64 // to settle: the instant of what is corrected, in microseconds
	pending pending

	// From the reply: the account before the line.
	used  int64 // in units
	at    int64 // the instant of the line for this account
	reset int64 // of a rolling log, in microseconds
}

// run is requests of a line that follow each other and cost the same.
type run struct {
	draws       []runDraw // one for each draw of the line
	count       int64     // requests that are sent
	first, last *waiter
}

// runDraw is what the requests of a run draw on one account.
type runDraw struct {
	cost   int64 // of one request
	used   int64 // in units, before the run
	debits int64 // how many requests of the run the account has paid
	wait   int64 // of who is refused by a rolling log, in microseconds
}

// longest is how many runs a line has at most.
const longest = 32

// owner is whom a line is for. The callers of one network are one owner, since they
// can be invented.
type owner struct{ kind, tenant, id string }

// ownerOf returns the owner of charges of one request: the closest to a single caller.
func ownerOf(charges []limiter.Charge) (o owner) {
	for i := range charges {
		p := charges[i].Key.Principal
		switch {
		case p.Kind == kind.Address:
			return owner{p.Kind, p.Tenant, ""}
		case p.ID != "":
			return owner{p.Kind, p.Tenant, p.ID}
		case p.Tenant != "":
			o = owner{p.Kind, p.Tenant, ""}
		}
	}
	return o
}

var seed = maphash.MakeSeed()

// hashOf returns a hash of what makes requests the same; see [line.is].
func hashOf(v verb, instant int64, charges []limiter.Charge) uint64 {
	h := uint64(v) ^ uint64(instant)*0x9e3779b97f4a7c15
	for i := range charges {
		k := &charges[i].Key
		for _, part := range [...]string{k.Budget, k.Principal.Tenant, k.Principal.ID, k.Route, k.Workload} {
			h = h*0x9e3779b97f4a7c15 + maphash.String(seed, part)
		}
	}
	return h
}

// is reports whether requests with these charges belong to the line.
func (l *line) is(v verb, instant int64, charges []limiter.Charge) bool {
	if l.verb != v || l.instant != instant || len(l.charges) != len(charges) {
		return false
	}
	for i := range charges {
		a, b := &l.charges[i], &charges[i]
		if a.Key != b.Key || a.Limit != b.Limit || a.Shadow != b.Shadow {
			return false
		}
	}
	return true
}

// newLine returns the line of a request, without a run. The error is a
// *limiter.ConfigError: the store cannot hold a limit, or one key has two limits or
// is both enforced and shadow.
func (s *Store) newLine(v verb, instant int64, charges []limiter.Charge) (*line, error) {
	l := &line{verb: v, instant: instant, owner: ownerOf(charges)}
	l.charges = append(l.one.charge[:0], charges...)
	l.draws = slices.Grow(l.one.draw[:0], len(charges))
	l.runs = l.one.runs[:0]
	names := s.keys.namer()
	defer names.free()
	for i := range l.charges {
		c := &l.charges[i]
		d := draw{shadow: c.Shadow, pending: s.combiner.denials.pending(v, c)}
		if v != reset {
			var err error
			if d.rule, err = newRule(c.Limit); err != nil {
				return nil, err
			}
		}
		j := -1
		if v != settle {
			j = l.find(c.Key, i)
		}
		switch {
		case j < 0:
			d.name = names.text(c.Key)
			if d.rule.kind == limiter.RollingLog {
				l.logs++
			}
			d.taken = c.Receipt.At / int64(time.Microsecond)
			if l.of != nil {
				l.of = append(l.of, len(l.draws))
			}
			l.draws = append(l.draws, d)
			l.size += len(d.name) + maxLimit + 16
		case l.draws[j].rule != d.rule || l.draws[j].shadow != d.shadow:
			return nil, wrong("Charges", c.Key.Budget,
				"one key has two limits, or is both enforced and shadow")
		default:
			if l.of == nil {
				l.of = make([]int, i, len(charges))
				for k := range l.of {
					l.of[k] = k
				}
			}
			l.of = append(l.of, j)
		}
	}
	return l, nil
}

// find returns the draw of the first of the line's charges before end that has the
// key, or -1.
func (l *line) find(key limiter.Key, end int) int {
	for i := range end {
		if l.charges[i].Key == key {
			return l.draw(i)
		}
	}
	return -1
}

// draw returns the number of the draw of a charge.
func (l *line) draw(charge int) int {
	if l.of == nil {
		return charge
	}
	return l.of[charge]
}

// cost returns what a request with these charges costs at a draw.
func (l *line) cost(draw int, charges []limiter.Charge) int64 {
	if l.of == nil {
		return charges[draw].Cost
	}
	sum := int64(0)
	for i, j := range l.of {
		if j == draw {
			sum += min(charges[i].Cost, math.MaxInt64-sum)
		}
	}
	return sum
}

// add adds a request, and reports whether there was room for it.
func (l *line) add(w *waiter, charges []limiter.Charge) bool {
	if n := len(l.runs); n == 0 || !l.runs[n-1].costs(l, charges) {
		if n == longest {
			return false
		}
		r := &run{}
		if n == 0 {
			r = &l.one.run
			*r = run{draws: l.one.runDraw[:0]}
		}
		for j := range l.draws {
			r.draws = append(r.draws, runDraw{cost: l.cost(j, charges)})
		}
		l.runs = append(l.runs, r)
	}
	l.runs[len(l.runs)-1].append(w)
	return true
}

// costs reports whether a request with these charges costs as much as those of the
// run.
func (r *run) costs(l *line, charges []limiter.Charge) bool {
	for j := range r.draws {
		if r.draws[j].cost != l.cost(j, charges) {
			return false
		}
	}
	return true
}

func (r *run) append(w *waiter) {
	w.next = nil
	if r.last == nil {
		r.first = w
	} else {
		r.last.next = w
	}
	r.last = w
	r.count++
}

// work returns what the line adds to a batch. A rolling log counts 8, and to correct
// one counts 16.
func (l *line) work() int {
	if l.verb == settle {
		return 1 + 15*l.logs
	}
	return max(len(l.runs), 1) * (1 + 7*l.logs)
}

// bytes returns the length of the line in a command.
func (l *line) bytes() int { return l.size + 16 + len(l.runs)*8*(1+2*len(l.draws)) }

// appendTo appends the line to the script's argument. number returns the number of a
// limit. A line without runs does nothing.
func (l *line) appendTo(dst []byte, number func(*rule) uint16) []byte {
	v := l.verb
	if len(l.runs) == 0 {
		v = peek
	}
	dst = append(dst, byte(v))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(l.draws)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(l.runs)))
	dst = appendNumbers(dst, l.instant)
	for j := range l.draws {
		d := &l.draws[j]
		dst = binary.LittleEndian.AppendUint16(dst, 2*number(&d.rule)+uint16(bit(d.shadow)))
	}
	for _, r := range l.runs {
		dst = appendNumbers(dst, r.count)
		for j := range r.draws {
			d, cost := &l.draws[j], r.draws[j].cost
			if l.verb == settle {
				dst = appendNumbers(dst, max(-most, min(cost, most)), d.taken)
			} else {
				dst = appendNumbers(dst, min(cost, d.rule.capacity+1))
			}
		}
	}
	return dst
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
