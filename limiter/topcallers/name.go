package topcallers

import (
	"strings"
	"unicode/utf8"

	"github.com/ration-go/ration/limiter"
)

// The bytes that are kept of the parts of a principal.
const (
	kindBytes   = 24
	tenantBytes = 64
	idBytes     = 128
)

// name is a copy of a principal, cut to what is shown: callers choose how long it is, and
// a string may keep the whole request in memory that it is a part of.
type name struct {
	kind    [kindBytes]byte
	tenant  [tenantBytes]byte
	id      [idBytes]byte
	lengths [3]uint8
	cut     [3]bool
}

func (n *name) set(p *limiter.Principal) {
	n.lengths = [3]uint8{uint8(copy(n.kind[:], p.Kind)), uint8(copy(n.tenant[:], p.Tenant)),
		uint8(copy(n.id[:], p.ID))}
	n.cut = [3]bool{len(p.Kind) > kindBytes, len(p.Tenant) > tenantBytes, len(p.ID) > idBytes}
}

// principal returns the principal as it is shown, in valid UTF-8.
func (n *name) principal() limiter.Principal {
	return limiter.Principal{
		Kind:   shown(n.kind[:n.lengths[0]], n.cut[0]),
		Tenant: shown(n.tenant[:n.lengths[1]], n.cut[1]),
		ID:     shown(n.id[:n.lengths[2]], n.cut[2]),
	}
}

func shown(text []byte, cut bool) string {
	if !cut {
		return strings.ToValidUTF8(string(text), "\uFFFD")
	}
	for end := len(text) - 1; end >= 0 && end > len(text)-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			if !utf8.FullRune(text[end:]) {
				text = text[:end]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(text), "\uFFFD") + "…"
}
