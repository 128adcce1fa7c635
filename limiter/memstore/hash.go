package memstore

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// fingerprint is a 96-bit hash of a key. The bits of high also choose the block and the
// slot of the record.
type fingerprint struct {
	high uint64
	low  uint32
}

// hasher makes fingerprints with the runtime's keyed hash. Each part of a key is
// hashed alone and multiplied by the weight of that part, so that equal strings in two
// parts differ. Parts that depend on the caller (tenant, id, workload) are hashed
// twice, with two seeds. The names that the service chooses (budget, kind, route) are
// hashed once, since no caller can invent them, and the lanes of most are cached.
type hasher struct {
	a, b  maphash.Seed
	mask  uint8                      // shards in use, less 1
	known [256]atomic.Pointer[names] // a cache; entries are never evicted
}

func (h *hasher) start(shards int) {
	h.a, h.b, h.mask = maphash.MakeSeed(), maphash.MakeSeed(), uint8(shards-1)
}

// lanes is the weighted sums of the hashes of some parts of a key.
type lanes struct{ a, b uint64 }

func (l lanes) add(m lanes) lanes { return lanes{l.a + m.a, l.b + m.b} }

// weight is the factors of one part in both lanes. They are odd, so that a product
// loses no bits of a hash.
type weight struct{ a, b uint64 }

var (
	weightBudget   = weight{0x9e3779b97f4a7c15, 0x8ebc6af09c88c6e3}
	weightKind     = weight{0xbf58476d1ce4e5b9, 0x589965cc75374cc3}
	weightTenant   = weight{0x94d049bb133111eb, 0x1d8e4e27c47d124f}
	weightID       = weight{0xd6e8feb86659fd93, 0xeb44accab455d165}
	weightRoute    = weight{0xa0761d6478bd642f, 0x9c6e6877736c46e3}
	weightWorkload = weight{0xe7037ed1a0b428db, 0xc2b2ae3d27d4eb4f}
	weightOverflow = weight{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53}
)

// addName adds a name that the service chooses; an empty one adds nothing.
func (h *hasher) addName(l lanes, name string, w *weight) lanes {
	if name == "" {
		return l
	}
	v := maphash.String(h.a, name)
	return lanes{l.a + v*w.a, l.b + bits.RotateLeft64(v, 32)*w.b}
}

// addPart adds a part that depends on the caller; an empty one adds nothing.
func (h *hasher) addPart(l lanes, part string, w *weight) lanes {
	if part == "" {
		return l
	}
	return lanes{
		l.a + maphash.String(h.a, part)*w.a,
		l.b + maphash.String(h.b, part)*w.b,
	}
}

// names is the names in a key that the service chooses, and their lanes.
type names struct {
	budget, kind, route string
	lanes               lanes
	classes             [4]atomic.Pointer[class] // some of the budget; they may be dropped
}

// class returns the class of the limit, or nil if it is not remembered. Unless something
// holds the class, it may be dropped.
func (n *names) class(l *limiter.Limit) *class {
	if n == nil {
		return nil
	}
	for i := range n.classes {
		if c := n.classes[i].Load(); c == nil || c.is(l) {
			return c
		}
	}
	return nil
}

// remember keeps a class of the budget that is not for overflow accounts, in the place
// of another one if need be.
func (n *names) remember(c *class) {
	if n == nil {
		return
	}
	for i := range n.classes {
		if old := n.classes[i].Load(); old == nil || old.refs.Load() < 0 {
			n.classes[i].Store(c)
			return
		}
	}
	n.classes[c.number%uint32(len(n.classes))].Store(c)
}

// names returns the names in k and their lanes, from the cache if they are there; nil if
// there is no room for them. To compare strings with the same address, which a service's names usually are, is faster than
// to hash them.
func (h *hasher) names(k *limiter.Key) (*names, lanes) {
	i := uint8(place(k.Budget) + 7*place(k.Route) + 3*len(k.Principal.Kind))
	for range 4 { // slots that are searched
		slot := &h.known[i]
		n := slot.Load()
		if n == nil {
			n = &names{budget: k.Budget, kind: k.Principal.Kind, route: k.Route, lanes: h.hashNames(k)}
			slot.CompareAndSwap(nil, n)
			return n, n.lanes
		}
		if n.budget == k.Budget && n.route == k.Route && n.kind == k.Principal.Kind {
			return n, n.lanes
		}
		i++
	}
	return nil, h.hashNames(k)
}

// place returns a number for a name, from its length and two of its bytes.
func place(name string) int {
	n := len(name)
	if n == 0 {
		return 0
	}
	return 31*n + int(name[n-1]) + int(name[n/2])
}

func (h *hasher) hashNames(k *limiter.Key) lanes {
	l := h.addName(lanes{}, k.Budget, &weightBudget)
	l = h.addName(l, k.Principal.Kind, &weightKind)
	return h.addName(l, k.Route, &weightRoute)
}

// caller is the lanes of the tenant and the id of a principal, and the names of the key.
type caller struct {
	names     *names             // nil: not cached
	principal *limiter.Principal // nil: none yet
	tenant    lanes              // of the tenant alone
	lanes     lanes
}

// key returns the fingerprint of a key and the number of its shard. It keeps the lanes of
// the principal in last, since the next key of a request often has the same one.
func (h *hasher) key(k *limiter.Key, last *caller) (fingerprint, uint8) {
	p := &k.Principal
	if q := last.principal; q == nil || q.ID != p.ID || q.Tenant != p.Tenant {
		last.principal = p
		last.tenant = h.addPart(lanes{}, p.Tenant, &weightTenant)
		last.lanes = h.addPart(last.tenant, p.ID, &weightID)
	}
	n, l := h.names(k)
	last.names = n
	l = l.add(last.lanes)
	if k.Workload != "" {
		l = h.addPart(l, k.Workload, &weightWorkload)
	}
	f := l.fingerprint()
	if p.Kind == kind.Address && p.Tenant != "" {
		return f, last.tenant.shard(f) & h.mask
	}
	return f, last.lanes.shard(f) & h.mask
}

// shard returns the number of the shard of the key f, whose tenant and id have the lanes
// p, so that all budgets of one caller need one lock. For an address, p is that of the
// network (the tenant) alone: the addresses of one network share one shard and its
// overflow accounts, and cannot use up those of other networks. A key without tenant
// and id is distributed by its fingerprint.
func (p lanes) shard(f fingerprint) uint8 {
	if p.a == 0 {
		return uint8(f.high >> 56)
	}
	return uint8(p.a >> 56)
}

// overflow returns the fingerprint of a budget's overflow accounts. Each shard has one.
func (h *hasher) overflow(p *pool) fingerprint {
	l := h.addName(lanes{}, p.name, &weightOverflow)
	l.b += p.region.id << 32
	return l.fingerprint()
}

// fingerprint mixes the lanes. The upper bits of a sum depend on all bits below them, so
// the upper half of b is mixed into the lower half of a.
func (l lanes) fingerprint() fingerprint {
	return fingerprint{l.a ^ l.b>>32, uint32(bits.ReverseBytes64(l.b))}
}
