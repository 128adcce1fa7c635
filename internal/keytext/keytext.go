// Package keytext writes a limiter.Key as text, for stores that need some: two
// keys never have the same text, whatever callers put into the parts, and a text
// has at most [MaxLen] bytes.
//
//	budget:principal:route:workload
//	orders:AtjPX33WH7nA_VGN5r8btw:GET%20/orders/%7Bid%7D
//
// without the separators that would end it, where:
//
//	principal  22 characters, 128 bits of an HMAC-SHA-256 over kind, tenant and id,
//	           each with its length in front; empty where all three are
//	the others letters, digits and "-._/" as they are, every other byte as %XX; one
//	           that would pass 96 characters is "~" and 22 characters of the HMAC
//
// So ":" separates, and neither a brace nor anything a shell or a pattern of
// SCAN gives a meaning to is ever in a text.
package keytext

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"sync"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

const (
	sumLen  = 22 // of 16 bytes in base64 without padding
	partLen = 96 // the longest part that is not hashed

	// MaxLen is the length of the longest text.
	MaxLen = partLen + 1 + sumLen + 1 + partLen + 1 + partLen
	// TagLen is the length of every tag but the empty one: 24 bits, for the 14 of a slot.
	TagLen = 4
)

// Encoder writes keys under one secret. It is immutable and safe for concurrent
// use; the zero Encoder is not usable, see [New].
type Encoder struct {
	hashers sync.Pool // of *hasher
}

// New returns the encoder of a secret: all processes that share accounts need
// the same one. Without a secret the hash is plain SHA-256, and whoever reads the
// texts can search for the ids that are in them.
func New(secret []byte) *Encoder {
	secret = append([]byte(nil), secret...)
	e := &Encoder{}
	e.hashers.New = func() any {
		if len(secret) == 0 {
			return &hasher{hash: sha256.New()}
		}
		return &hasher{hash: hmac.New(sha256.New, secret)}
	}
	return e
}

// Append appends the text of k to dst. It does not allocate if dst has room.
func (e *Encoder) Append(dst []byte, k limiter.Key) []byte {
	var sum [sumLen]byte
	return e.AppendWith(dst, k, e.AppendPrincipal(sum[:0], k.Principal))
}

// AppendWith is Append for a key of which AppendPrincipal has hashed the principal.
func (e *Encoder) AppendWith(dst []byte, k limiter.Key, principal []byte) []byte {
	start := len(dst)
	dst = append(append(append(e.part(dst, k.Budget), ':'), principal...), ':')
	dst = e.part(append(e.part(dst, k.Route), ':'), k.Workload)
	for len(dst) > start && dst[len(dst)-1] == ':' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// AppendPrincipal appends the hash of a principal, or nothing for the zero Principal.
func (e *Encoder) AppendPrincipal(dst []byte, p limiter.Principal) []byte {
	if p == (limiter.Principal{}) {
		return dst
	}
	return e.principal(dst, p)
}

// AppendTag appends what all keys of a tenant have in common, or of a principal
// without a tenant: the same for the principals of a tenant and for what a
// budget ByTenant makes of them. It is the beginning of the hash of that principal.
// Between braces it keeps their keys in one slot of a Redis Cluster; tenants may share a
// tag, so it does not tell their keys apart. Keys without a principal have no tag:
// nothing is appended.
func (e *Encoder) AppendTag(dst []byte, p limiter.Principal) []byte {
	if p == (limiter.Principal{}) {
		return dst
	}
	length := len(dst) + TagLen
	return e.principal(dst, tenant(p))[:length]
}

// tenant returns the principal that a budget ByTenant counts for p.
func tenant(p limiter.Principal) limiter.Principal {
	if p.Tenant == "" {
		return p
	}
	if kind.Reserved(p.Kind) {
		return limiter.Principal{Kind: p.Kind, Tenant: p.Tenant}
	}
	return limiter.Principal{Tenant: p.Tenant}
}

func (e *Encoder) principal(dst []byte, p limiter.Principal) []byte {
	return e.sum(dst, 'p', p.Kind, p.Tenant, p.ID)
}

// part appends a part of a key, escaped, or hashed where that is too long.
func (e *Encoder) part(dst []byte, s string) []byte {
	start := len(dst)
	for i := range len(s) {
		if dst = escape(dst, s[i]); len(dst)-start > partLen {
			return e.sum(append(dst[:start], '~'), 't', s)
		}
	}
	return dst
}

func escape(dst []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
		c == '-', c == '.', c == '_', c == '/':
		return append(dst, c)
	default:
		return append(dst, '%', hex[c>>4], hex[c&15])
	}
}

// hasher is a keyed hash and its input and output.
type hasher struct {
	hash hash.Hash
	buf  []byte
}

// keepBuf is the largest buffer that is kept; ids are shorter by far.
const keepBuf = 4096

// sum appends 128 bits of the hash over what is hashed and its parts, each with
// its length in front, so that no two lists of parts are the same input.
func (e *Encoder) sum(dst []byte, what byte, parts ...string) []byte {
	h := e.hashers.Get().(*hasher)
	h.hash.Reset()
	h.buf = append(h.buf[:0], what)
	for _, s := range parts {
		h.buf = binary.AppendUvarint(h.buf, uint64(len(s)))
		h.buf = append(h.buf, s...)
	}
	_, _ = h.hash.Write(h.buf) // a hash never fails
	h.buf = h.hash.Sum(h.buf[:0])
	dst = base64.RawURLEncoding.AppendEncode(dst, h.buf[:16])
	if cap(h.buf) <= keepBuf {
		e.hashers.Put(h)
	}
	return dst
}
