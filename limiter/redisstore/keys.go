package redisstore

import (
	"bytes"
	"sync"

	"github.com/ration-go/ration/internal/keytext"
	"github.com/ration-go/ration/limiter"
)

const defaultPrefix = "ration:"

// keys writes keys as the server knows them.
type keys struct {
	prefix  string
	encoder *keytext.Encoder
	namers  *sync.Pool // of those that have buffers
}

func newKeys(prefix string, secret []byte) keys {
	return keys{prefix, keytext.New(secret), new(sync.Pool)}
}

// namer writes the keys of one request, most of which are one principal's: it is
// hashed once.
type namer struct {
	keys
	principal limiter.Principal
	tag, own  []byte // of the principal
	buffer    []byte
}

// namer returns a namer. Whoever needs it no more frees it.
func (k keys) namer() *namer {
	if n, ok := k.namers.Get().(*namer); ok {
		return n
	}
	return &namer{keys: k, buffer: make([]byte, 0, 128)}
}

func (n *namer) free() { n.namers.Put(n) }

// text returns the key's text: the prefix, between braces what keeps the keys of
// one tenant in one slot of a cluster, and the key.
func (n *namer) text(key limiter.Key) string {
	text := append(n.buffer[:0], n.prefix...)
	if key.Principal == (limiter.Principal{}) {
		n.buffer = n.encoder.Append(text, key)
		return string(n.buffer)
	}
	n.know(key.Principal)
	key.Principal = limiter.Principal{}
	text = append(append(append(text, '{'), n.tag...), '}')
	budget := len(text)
	text = n.encoder.Append(text, key)
	budget += bytes.IndexByte(text[budget:], ':') + 1
	n.buffer = append(text, n.own...)
	copy(n.buffer[budget+len(n.own):], n.buffer[budget:len(text)])
	copy(n.buffer[budget:], n.own)
	return string(n.buffer)
}

// know hashes the principal, unless it is that of the key before.
func (n *namer) know(p limiter.Principal) {
	if p == n.principal {
		return
	}
	n.principal = p
	n.tag = n.encoder.AppendTag(n.tag[:0], p)
	if n.own = append(n.own[:0], n.tag...); p.Tenant != "" {
		text := n.encoder.Append(n.own[:0], limiter.Key{Principal: p}) // ":", the hash, "::"
		n.own = append(n.own[:0], text[1:1+keytext.TagLen]...)
	}
}

// KeyFor returns the name of the server's key that holds an account, for
// operators; only the Prefix and the Secret of cfg count. Which parts a key has
// is the budget's scope: parts out of scope are empty.
func KeyFor(cfg Config, key limiter.Key) string {
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	return newKeys(cfg.Prefix, cfg.Secret).namer().text(key)
}
