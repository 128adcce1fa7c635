package memstore

import "math/bits"

// lockSet is the shards that one request locks: often only one.
type lockSet struct {
	only *shard                  // nil where there are several, or none
	many [shardCount / 64]uint64 // a bit for each
	n    int
}

// addLock adds a shard and returns it.
func (s *Store) addLock(set *lockSet, number uint8) *shard {
	added := &s.shards[number]
	if set.only == added {
		return added
	}
	word, bit := &set.many[number/64], uint64(1)<<(number%64)
	if *word&bit == 0 {
		*word |= bit
		if set.n++; set.n == 1 {
			set.only = added
		} else {
			set.only = nil
		}
	}
	return added
}

// lock locks in ascending order, so that requests cannot wait for one another.
func (s *Store) lock(set *lockSet) {
	if set.only != nil {
		set.only.mu.Lock()
		return
	}
	s.each(set, func(sh *shard) { sh.mu.Lock() })
}

func (s *Store) unlock(set *lockSet) {
	if set.only != nil {
		set.only.mu.Unlock()
		return
	}
	s.each(set, func(sh *shard) { sh.mu.Unlock() })
}

func (s *Store) each(set *lockSet, do func(*shard)) {
	for i, word := range set.many {
		for ; word != 0; word &= word - 1 {
			do(&s.shards[64*i+bits.TrailingZeros64(word)])
		}
	}
}
