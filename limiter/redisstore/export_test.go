package redisstore

import "github.com/ration-go/ration/limiter"

// Most is the most units that an account can have used.
const Most = most

// Unit returns how many units a token of the limit has.
func Unit(l limiter.Limit) int64 {
	r, err := newRule(l)
	if err != nil {
		panic(err)
	}
	return r.p
}

// KeysOf returns the names of the keys, as one request writes them.
func (s *Store) KeysOf(all []limiter.Key) []string {
	names, texts := s.keys.namer(), make([]string, len(all))
	for i, key := range all {
		texts[i] = names.text(key)
	}
	return texts
}
