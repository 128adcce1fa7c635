package denylog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/ration-go/ration/limiter"
)

// Hash returns the 16 hex digits by which lines name a principal if Principals is
// [Hashed]: the first 64 bits of an HMAC-SHA-256. A tenant is named as
// Principal{Tenant: tenant}. Without the secret nobody can find out whom it names, and
// with it anybody can who guesses the name.
func Hash(secret []byte, p limiter.Principal) string {
	return hash(secret, "principal", p.Kind, p.Tenant, p.ID)
}

// hash hashes parts with their lengths, so that none runs into the next one.
func hash(secret []byte, parts ...string) string {
	mac := hmac.New(sha256.New, secret)
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write([]byte(part))
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// name adds who was refused, as Principals says.
func (l *log) name(attrs []slog.Attr, c *limiter.Caller) []slog.Attr {
	p := &c.Principal
	var tenant, id, workload string
	switch l.cfg.Principals {
	case LeaveOut:
		return attrs
	case Hashed:
		secret := l.cfg.Secret
		id = hash(secret, "principal", p.Kind, p.Tenant, p.ID)
		tenant = hash(secret, "principal", "", p.Tenant, "")
		workload = hash(secret, "workload", c.Workload)
	case Plain:
		tenant, id, workload = cut(p.Tenant), cut(p.ID), cut(c.Workload)
	}
	if !p.Nobody() {
		who := []any{slog.String("kind", cut(p.Kind))}
		if p.Tenant != "" {
			who = append(who, slog.String("tenant", tenant))
		}
		attrs = append(attrs, slog.Group("principal", append(who, slog.String("id", id))...))
	}
	if c.Workload != "" {
		attrs = append(attrs, slog.String("workload", workload))
	}
	return attrs
}

// maxValue is how many bytes of a text are logged.
const maxValue = 256

// cut returns a text as it is logged: valid UTF-8, and a copy of the beginning if it is
// long, so that a handler which keeps it keeps little.
func cut(text string) string {
	if len(text) > maxValue {
		end := maxValue
		for end > maxValue-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
