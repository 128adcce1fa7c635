package topcallers

import (
	"sync"
	"sync/atomic"

	"github.com/ration-go/ration/limiter"
)

// cells is how many callers a sketch counts.
const cells = 512

// The word of a cell is its count, and above it a generation, which changes whenever
// the cell gets another caller. So an increment by compare-and-swap cannot reach the
// caller that has replaced the one that was found.
const (
	countBits = 48
	countMask = 1<<countBits - 1
)

// sketch counts callers by Space-Saving: a caller without a cell takes the one with the
// least count, goes on from that count, and notes it as its possible error. The sum of
// all counts is the number of requests.
//
// Callers that have a cell are counted without the lock. The cell of a caller is known by
// its hash; 0 is none.
type sketch struct {
	words  [cells]atomic.Uint64
	hashes [cells]atomic.Uint64
	index  index
	labels *[cells]labelSet // nil: not counted

	mu     sync.Mutex // guards what follows, and changes of hashes and index
	errors [cells]uint64
	names  [cells]name
	used   int
	least  uint64 // no count is below it, if all cells are used
	cursor int    // where the search for a cell with the least count goes on
}

// newSketch returns an empty sketch, which estimates labels if it has to.
func newSketch(labels bool) *sketch {
	s := new(sketch)
	if labels {
		s.labels = new([cells]labelSet)
	}
	return s
}

// add counts a request of a caller, whose hash is not 0.
func (s *sketch) add(hash uint64, p *limiter.Principal, label uint64) {
	i, ok := s.hit(hash)
	if !ok {
		i = s.miss(hash, p)
	}
	if label != 0 && s.labels != nil {
		s.labels[i].add(label)
	}
}

// hit counts a request of a caller that has a cell.
func (s *sketch) hit(hash uint64) (cell int, ok bool) {
	for probe := s.index.start(hash); ; probe = probe.next() {
		i := s.index.cell(probe)
		if i < 0 {
			return 0, false
		}
		for {
			word := s.words[i].Load() // before the hash; see evict
			if s.hashes[i].Load() != hash {
				break
			}
			if s.words[i].CompareAndSwap(word, word+1) {
				return i, true
			}
		}
	}
}

// miss counts a request of a caller that has no cell, and gives it one.
func (s *sketch) miss(hash uint64, p *limiter.Principal) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.hit(hash); ok { // another goroutine was first
		return i
	}
	i := s.used
	if i < cells {
		s.used++
		s.words[i].Store(1)
	} else {
		i = s.evict()
	}
	s.names[i].set(p)
	s.index.insert(hash, i)
	s.hashes[i].Store(hash)
	return i
}

// evict takes a cell with the least count from its caller and counts one request more.
// A caller loses its cell in two steps: first its hash, so that nobody finds it, and then
// the generation of its word, so that whoever has found it before fails to count.
func (s *sketch) evict() int {
	for {
		i := s.leastCell()
		word, hash := s.words[i].Load(), s.hashes[i].Load()
		count := word & countMask
		next := (word>>countBits+1)<<countBits | (count + 1)
		s.hashes[i].Store(0)
		if count != s.least || !s.words[i].CompareAndSwap(word, next) {
			s.hashes[i].Store(hash) // it has been counted meanwhile
			continue
		}
		s.index.remove(hash, i, &s.hashes)
		s.errors[i] = count
		if s.labels != nil {
			s.labels[i].clear()
		}
		return i
	}
}

// leastCell returns a cell whose count is the least. Counts only grow, so a search goes
// on where the last one ended, and the least count changes once it comes round.
func (s *sketch) leastCell() int {
	for range cells {
		i := s.cursor
		s.cursor = (i + 1) % cells
		if s.words[i].Load()&countMask <= s.least {
			return i
		}
	}
	least, at := uint64(countMask), 0
	for i := range s.words {
		if count := s.words[i].Load() & countMask; count < least {
			least, at = count, i
		}
	}
	s.least, s.cursor = least, (at+1)%cells
	return at
}

// counted is a caller in a sketch.
type counted struct {
	hash   uint64
	name   name
	count  uint64
	error  uint64
	labels labelSet
}

// read returns all callers of the sketch, their requests, and how many requests a caller
// that is not among them may have sent.
func (s *sketch) read() (all []counted, total, missing uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = make([]counted, s.used)
	missing = countMask
	for i := range all {
		c := &all[i]
		c.hash, c.name, c.error = s.hashes[i].Load(), s.names[i], s.errors[i]
		c.count = s.words[i].Load() & countMask
		if s.labels != nil {
			c.labels.join(&s.labels[i])
		}
		total += c.count
		missing = min(missing, c.count)
	}
	if s.used < cells {
		missing = 0
	}
	return all, total, missing
}
