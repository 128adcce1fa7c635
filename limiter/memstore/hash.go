package memstore

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// fingerprint stands for a key: 96 bits, of which high also says where in its
// shard the record is.
type fingerprint struct {
	high uint64
	low  uint32
}

// hasher makes fingerprints by the runtime's keyed hash. Each part of a key is
// hashed by itself and weighed by its place, so that no two parts run into one
// another. What callers bring (tenant, id, workload) is hashed twice, by two
// seeds; the names that the service gives (budget, kind, route), which nobody
// can make up, once, and mostly not even that: they are few, and known.
type hasher struct {
	a, b  maphash.Seed
	mask  uint8                      // shards in use, less 1
	known [256]atomic.Pointer[names] // those that came first stay
}

func (h *hasher) start(shards int) {
	h.a, h.b, h.mask = maphash.MakeSeed(), maphash.MakeSeed(), uint8(shards-1)
}

// lanes is the sums of some parts of a key under both seeds.
type lanes struct{ a, b uint64 }

func (l lanes) add(m lanes) lanes { return lanes{l.a + m.a, l.b + m.b} }

// place is the odd weights of one part in both lanes.
type place struct{ a, b uint64 }

var (
	placeBudget   = place{0x9e3779b97f4a7c15, 0x8ebc6af09c88c6e3}
	placeKind     = place{0xbf58476d1ce4e5b9, 0x589965cc75374cc3}
	placeTenant   = place{0x94d049bb133111eb, 0x1d8e4e27c47d124f}
	placeID       = place{0xd6e8feb86659fd93, 0xeb44accab455d165}
	placeRoute    = place{0xa0761d6478bd642f, 0x9c6e6877736c46e3}
	placeWorkload = place{0xe7037ed1a0b428db, 0xc2b2ae3d27d4eb4f}
	placeOverflow = place{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53}
)

// named adds a name that the service gives; an empty one adds nothing.
func (h *hasher) named(l lanes, name string, at *place) lanes {
	if name == "" {
		return l
	}
	v := maphash.String(h.a, name)
	return lanes{l.a + v*at.a, l.b + bits.RotateLeft64(v, 32)*at.b}
}

// brought adds a part that the caller brings; an empty one adds nothing.
func (h *hasher) brought(l lanes, part string, at *place) lanes {
	if part == "" {
		return l
	}
	return lanes{
		l.a + maphash.String(h.a, part)*at.a,
		l.b + maphash.String(h.b, part)*at.b,
	}
}

// names is the names that the service gives in a key, and their lanes.
type names struct {
	budget, kind, route string
	lanes               lanes
}

// names returns the lanes of the names in k. Equal strings at one address, as a
// service's names are, compare faster than they hash.
func (h *hasher) names(k *limiter.Key) lanes {
	i := 31*len(k.Budget) + 7*len(k.Route) + 3*len(k.Principal.Kind)
	if n := len(k.Route); n > 0 {
		i += int(k.Route[n-1]) + int(k.Route[n/2])
	}
	place := &h.known[i%len(h.known)]
	n := place.Load()
	if n != nil && n.budget == k.Budget && n.route == k.Route && n.kind == k.Principal.Kind {
		return n.lanes
	}
	l := h.named(lanes{}, k.Budget, &placeBudget)
	l = h.named(l, k.Principal.Kind, &placeKind)
	l = h.named(l, k.Route, &placeRoute)
	if n == nil {
		place.Store(&names{k.Budget, k.Principal.Kind, k.Route, l})
	}
	return l
}

// caller is the lanes of a key's tenant and id.
type caller struct {
	principal *limiter.Principal // nil: none yet
	tenant    lanes              // of the tenant alone
	lanes     lanes
}

// key returns the fingerprint of a key and the number of its shard. It keeps the
// caller in last, for the request's next key.
func (h *hasher) key(k *limiter.Key, last *caller) (fingerprint, uint8) {
	p := &k.Principal
	if q := last.principal; q == nil || q.ID != p.ID || q.Tenant != p.Tenant {
		last.principal = p
		last.tenant = h.brought(lanes{}, p.Tenant, &placeTenant)
		last.lanes = h.brought(last.tenant, p.ID, &placeID)
	}
	l := h.names(k).add(last.lanes)
	if k.Workload != "" {
		l = h.brought(l, k.Workload, &placeWorkload)
	}
	f := l.fingerprint()
	if p.Kind == kind.Address && p.Tenant != "" {
		return f, last.tenant.shard(f) & h.mask
	}
	return f, last.lanes.shard(f) & h.mask
}

// shard returns the number of the shard of the key f. Its tenant and id choose it,
// so that the budgets of one caller need one lock. For an address it is the
// network (the tenant) alone: the addresses of one network share a shard and so its
// overflow accounts, and cannot use up those of other networks. Without either, the
// whole key chooses.
func (p lanes) shard(f fingerprint) uint8 {
	if p.a == 0 {
		return uint8(f.high >> 56)
	}
	return uint8(p.a >> 56)
}

// overflow returns the fingerprint of a budget's overflow accounts, of which
// each shard has one.
func (h *hasher) overflow(p *pool) fingerprint {
	l := h.named(lanes{}, p.name, &placeOverflow)
	l.b += p.region.sort << 32
	return l.fingerprint()
}

// fingerprint mixes the lanes: the upper bits of sums depend on all below.
func (l lanes) fingerprint() fingerprint {
	return fingerprint{l.a ^ l.b>>32, uint32(bits.ReverseBytes64(l.b))}
}
