package redisstore

import (
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
	tag, sum  []byte // of the principal
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
	n.hash(key.Principal)
	text = append(append(append(text, '{'), n.tag...), '}')
	n.buffer = n.encoder.AppendWith(text, key, n.sum)
	return string(n.buffer)
}

// hash hashes the principal, unless it is that of the key before.
func (n *namer) hash(p limiter.Principal) {
	if p == n.principal {
		return
	}
	n.principal = p
	n.sum = n.encoder.AppendPrincipal(n.sum[:0], p)
	if p.Tenant == "" {
		n.tag = append(n.tag[:0], n.sum[:keytext.TagLen]...)
	} else {
		n.tag = n.encoder.AppendTag(n.tag[:0], p)
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
