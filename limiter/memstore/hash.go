package memstore

import (
	"hash/maphash"

	"github.com/ration-go/ration/limiter"
)

// fingerprint stands for a key: 96 bits, of which high also says where in its
// shard the record is. 64 bits of a principal's own hash choose the shard, so
// that the budgets of one caller need one lock.
type fingerprint struct {
	high uint64
	low  uint32
}

// hasher makes fingerprints: two independent lanes of the runtime's keyed hash,
// each field in its own place, so that no two keys run into one another.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

// lanes is the hash of some fields of a key, in both lanes.
type lanes struct{ a, b uint64 }

// Odd multipliers that keep the places of the fields apart.
const (
	placeBudget   = 0x9e3779b97f4a7c15
	placeKind     = 0xbf58476d1ce4e5b9
	placeTenant   = 0x94d049bb133111eb
	placeID       = 0xd6e8feb86659fd93
	placeRoute    = 0xa0761d6478bd642f
	placeWorkload = 0xe7037ed1a0b428db
	placeOverflow = 0x8ebc6af09c88c6e3 // of the budgets' overflow accounts
	placeAddress  = 0x589965cc75374cc3 // the same, for callers by address
)

// add returns the lanes with a field in its place; an empty field adds nothing.
func (h *hasher) add(l lanes, field string, place uint64) lanes {
	if field == "" {
		return l
	}
	return lanes{
		l.a + maphash.String(h.a, field)*place,
		l.b + maphash.String(h.b, field)*place,
	}
}

func (h *hasher) principal(p *limiter.Principal) lanes {
	l := h.add(lanes{}, p.Kind, placeKind)
	l = h.add(l, p.Tenant, placeTenant)
	return h.add(l, p.ID, placeID)
}

// key returns the fingerprint of k and the number of its shard.
func (h *hasher) key(k *limiter.Key, principal lanes) (fingerprint, uint8) {
	l := h.add(principal, k.Budget, placeBudget)
	l = h.add(l, k.Route, placeRoute)
	l = h.add(l, k.Workload, placeWorkload)
	shard := principal.a
	if shard == 0 {
		shard = l.a
	}
	return finish(l), uint8(shard >> 56)
}

// overflow returns the fingerprint of a budget's overflow accounts; each shard
// has its own.
func (h *hasher) overflow(p *pool) fingerprint {
	return finish(h.add(lanes{}, p.name, p.region.place))
}

func finish(l lanes) fingerprint {
	return fingerprint{l.a ^ l.b>>32, uint32(l.b)}
}
