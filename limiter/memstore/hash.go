package memstore

import (
	"hash/maphash"
	"math/bits"

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
// can make up, once.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

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

func (h *hasher) principal(p *limiter.Principal) lanes {
	l := h.named(lanes{}, p.Kind, &placeKind)
	l = h.brought(l, p.Tenant, &placeTenant)
	return h.brought(l, p.ID, &placeID)
}

// shard returns the number of the shard of a key whose principal has the lanes
// p: the principal alone chooses it, so that the budgets of one caller need one
// lock. Where there is none, the whole key f does.
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
