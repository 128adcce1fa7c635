package redisstore

import (
	"github.com/ration-go/ration/internal/keytext"
	"github.com/ration-go/ration/limiter"
)

const defaultPrefix = "ration:"

// keys writes keys as the server knows them.
type keys struct {
	prefix  string
	encoder *keytext.Encoder
}

// text returns the key's text: the prefix, between braces what keeps the keys of
// one tenant in one slot of a cluster, and the key.
func (k *keys) text(key limiter.Key) string {
	var buffer [keytext.MaxLen]byte
	text := append(buffer[:0], k.prefix...)
	if key.Principal != (limiter.Principal{}) {
		text = append(k.encoder.AppendTag(append(text, '{'), key.Principal), '}')
	}
	return string(k.encoder.Append(text, key))
}

// KeyFor returns the name of the server's key that holds an account, for
// operators; only the Prefix and the Secret of cfg count. Which parts a key has
// is the budget's scope: parts out of scope are empty.
func KeyFor(cfg Config, key limiter.Key) string {
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	k := keys{cfg.Prefix, keytext.New(cfg.Secret)}
	return k.text(key)
}
