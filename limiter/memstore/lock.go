package memstore

import "math/bits"

// lockSet is the set of shards that one request locks, often a single one.
type lockSet struct {
	only *shard                  // the shard, if there is exactly one
	many [shardCount / 64]uint64 // a bit for each shard
	n    int                     // the number of shards
}

// addLock adds the shard with this number to the set and returns it.
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

// lock locks the shards in ascending order, so that two requests cannot deadlock.
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
