package memstore

import (
	"math"
	"math/bits"
	"sync"

	"github.com/ration-go/ration/internal/account"
	"github.com/ration-go/ration/internal/instant"
)

// shardCount is the most shards that a store uses.
const shardCount = 256

// shardsFor returns how many shards a store uses, a power of two. A small store has
// few, so that the overflow accounts of a budget, one in each shard, are a small part of
// its share.
func shardsFor(maxAccounts int) int {
	return 1 << (bits.Len(uint(min(max(maxAccounts/128, 1), shardCount))) - 1)
}

// shard is a part of the accounts under one lock.
type shard struct {
	mu sync.Mutex // guards what follows
	table
	logs     []*account.Log // of rolling logs; state.Rest of a record is the index
	freeLogs []uint64       // indexes that are free
	stocks   [stockCount]stock
	_        [64]byte // a cache line: none holds fields of two shards
}

// load returns the account in r, whose class is c.
func (s *shard) load(r *record, c *class) account.Account {
	a := account.Account{Limit: &c.rule, State: r.state}
	if c.rule.Algorithm == account.RollingLog {
		a.Log = s.logs[r.state.Rest]
	}
	return a
}

// save writes the account to r, whose class is then c. wasLog says whether r has a log
// already.
func (s *shard) save(r *record, c *class, a account.Account, wasLog bool) {
	isLog := a.Limit.Algorithm == account.RollingLog
	switch {
	case isLog && wasLog:
		s.logs[r.state.Rest] = a.Log
	case isLog:
		r.state = account.State{Rest: s.newLog(a.Log)}
	default:
		if wasLog {
			s.freeLog(r.state.Rest)
		}
		r.state = a.State
	}
	r.class = c.number
}

func (s *shard) newLog(log *account.Log) uint64 {
	if n := len(s.freeLogs); n > 0 {
		index := s.freeLogs[n-1]
		s.freeLogs = s.freeLogs[:n-1]
		s.logs[index] = log
		return index
	}
	s.logs = append(s.logs, log)
	return uint64(len(s.logs) - 1)
}

func (s *shard) freeLog(index uint64) {
	s.logs[index] = nil
	s.freeLogs = append(s.freeLogs, index)
}

// findFull returns the record of an account of class c that is full at now, if the search
// for f, which has no record, meets one. Its slot can then be that of f. If c is dropped,
// no record is of c, though its number may be in use again.
func (s *shard) findFull(f fingerprint, c *class, now int64, classes *catalog) *record {
	if len(s.directory) == 0 {
		return nil
	}
	b := s.directory[s.at(f)]
	for i := b.home(f); b[i].class != 0; i = b.next(i) {
		a := account.Account{Limit: &c.rule, State: b[i].state}
		if classes.class(b[i].class) == c && a.Full(now) {
			return &b[i]
		}
	}
	return nil
}

// insert adds a record whose account is a at now. Its place is taken already.
func (s *shard) insert(r record, now int64, a *account.Account, classes *catalog) {
	s.add(r, fullAt(now, a), func(b block) { s.sweep(b, now, classes) })
}

// sweep drops the accounts of a block that are full at now, and reports whether it
// dropped any. It returns at once if the header shows that none is full.
func (s *shard) sweep(b block, now int64, classes *catalog) (dropped bool) {
	if len(b) == 0 || now < b[0].state.At {
		return false
	}
	b[0].state.At = math.MaxInt64
	for i := 1; i < len(b); {
		r := &b[i]
		if r.class == 0 {
			i++
			continue
		}
		class := classes.class(r.class)
		if a := s.load(r, class); !a.Full(now) {
			b.expectFull(fullAt(now, &a))
			i++
			continue
		}
		s.release(r, class)
		b.remove(i) // which may put another record at i
		dropped = true
	}
	return dropped
}

// sweepNear calls sweep for one of the shard's blocks, which at chooses.
func (s *shard) sweepNear(at uint32, now int64, classes *catalog) bool {
	n := uint32(len(s.directory))
	return n > 0 && s.sweep(s.directory[at%n], now, classes)
}

// fullAt returns the instant at which an account is full, given its state at now.
func fullAt(now int64, a *account.Account) int64 { return instant.Add(now, a.Reset(now)) }

// expectFull tells the block of f when its account is full, given its state at now.
func (s *shard) expectFull(f fingerprint, now int64, a *account.Account) {
	s.directory[s.at(f)].expectFull(fullAt(now, a))
}

// release gives back the places, the log and the class of a record that will be removed.
func (s *shard) release(r *record, c *class) {
	a := s.load(r, c)
	s.give(c, places(a.LogRoom()))
	if c.isLog() {
		s.freeLog(r.state.Rest)
	}
}

// drop removes the record of f, if there is one.
func (s *shard) drop(f fingerprint, classes *catalog) {
	if len(s.directory) == 0 {
		return
	}
	b := s.directory[s.at(f)]
	if i := b.index(f); i > 0 {
		s.release(&b[i], classes.class(b[i].class))
		b.remove(i)
	}
}

// sweepAll sweeps and shrinks all blocks. It locks the shard for one block at a time.
func (s *shard) sweepAll(store *Store, read int64) {
	for i := 0; ; i++ {
		s.mu.Lock()
		if i >= len(s.directory) {
			s.giveAll(nil)
			s.mu.Unlock()
			return
		}
		s.sweep(s.directory[i], store.instant(read), store.classes)
		s.shrink(i)
		s.mu.Unlock()
	}
}
