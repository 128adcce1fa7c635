package memstore

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/ration-go/ration/limiter"
)

// fingerprint stands for a key: 96 bits, of which high also says where in its
// shard the record is.
type fingerprint struct {
	high uint64
	low  uint32
}

// hasher makes fingerprints by two of the runtime's keyed hashes, over an
// encoding in which each part follows its length, so that no two keys run into
// one another.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

// keyBuffer holds the encoding of a key; that of a longer one is allocated.
type keyBuffer [256]byte

func appendPart(b []byte, part string) []byte {
	if len(part) < 0x80 {
		return append(append(b, byte(len(part))), part...)
	}
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

func appendPrincipal(b []byte, p *limiter.Principal) []byte {
	return appendPart(appendPart(appendPart(b, p.Kind), p.Tenant), p.ID)
}

// key returns the fingerprint of k, whose principal stands in b, and the number
// of its shard. The principal alone chooses the shard, so that the budgets of
// one caller need one lock.
func (h *hasher) key(b []byte, k *limiter.Key) (fingerprint, uint8) {
	b = appendPart(appendPart(appendPart(b, k.Budget), k.Route), k.Workload)
	f := h.sum(b)
	switch {
	case k.Principal.ID != "":
		return f, uint8(maphash.String(h.a, k.Principal.ID) >> 56)
	case k.Principal.Tenant != "":
		return f, uint8(maphash.String(h.a, k.Principal.Tenant) >> 56)
	default:
		return f, uint8(f.high >> 56)
	}
}

// overflow returns the fingerprint of a budget's overflow accounts, of which
// each shard has one. Its encoding has too few parts to be a key's.
func (h *hasher) overflow(p *pool) fingerprint {
	var buffer keyBuffer
	return h.sum(append(appendPart(buffer[:0], p.name), p.region.sort))
}

func (h *hasher) sum(b []byte) fingerprint {
	return fingerprint{maphash.Bytes(h.a, b), uint32(maphash.Bytes(h.b, b) >> 32)}
}
