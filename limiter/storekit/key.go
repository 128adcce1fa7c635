package storekit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/ration-go/ration/limiter"
)

// Key names one account in a [Backend]. It is an HMAC-SHA-256 of all parts of a
// [limiter.Key], so it has one length, no two accounts share it, and no part of
// the caller's identity can be read from it.
type Key [sha256.Size]byte

// KeyOf returns the Key of an account under a secret, such as [Config.Secret]. With
// it an operator finds the row of a caller.
func KeyOf(k limiter.Key, secret []byte) Key {
	p := k.Principal
	var text []byte
	for _, part := range []string{k.Budget, p.Kind, p.Tenant, p.ID, k.Route, k.Workload} {
		text = binary.AppendUvarint(text, uint64(len(part))) // so that no parts run together
		text = append(text, part...)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return Key(mac.Sum(nil))
}
