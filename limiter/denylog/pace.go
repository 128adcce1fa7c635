package denylog

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// pace admits at most n lines in any second and counts what it leaves out.
type pace struct {
	tell    func(leftOut int64)
	start   time.Time
	next    atomic.Int64 // when the next line is admitted, in ns since start
	leftOut atomic.Int64 // since the latest line
	armed   atomic.Bool  // a timer will tell leftOut

	mu     sync.Mutex // guards what follows
	lines  []int64    // when the latest n lines were admitted: a ring
	oldest int
}

// newPace returns a pace of n lines a second. tell is called if for a second no line was
// admitted that could tell how many were left out.
func newPace(n int, tell func(leftOut int64)) *pace {
	p := &pace{tell: tell, start: time.Now(), lines: make([]int64, n)}
	for i := range p.lines {
		p.lines[i] = math.MinInt64 / 2
	}
	p.next.Store(math.MinInt64 / 2)
	return p
}

// admit reports whether a line may be written, and how many were left out before it.
func (p *pace) admit() (leftOut int64, admitted bool) {
	if p.reserve() {
		return p.leftOut.Swap(0), true
	}
	p.leftOut.Add(1)
	if !p.armed.Load() && p.armed.CompareAndSwap(false, true) {
		time.AfterFunc(time.Second, p.tellLater)
	}
	return 0, false
}

// reserve reports whether a line may be written, without a lock if not.
func (p *pace) reserve() bool {
	if p.now() < p.next.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now < p.next.Load() {
		return false
	}
	p.lines[p.oldest] = now
	p.oldest = (p.oldest + 1) % len(p.lines)
	p.next.Store(p.lines[p.oldest] + int64(time.Second))
	return true
}

// tellLater tells what was left out, unless a line has done so meanwhile.
func (p *pace) tellLater() {
	p.armed.Store(false)
	if p.leftOut.Load() == 0 {
		return
	}
	if p.reserve() {
		if n := p.leftOut.Swap(0); n > 0 {
			defer func() {
				if recover() != nil { // of a logger, which must not end the process from here
					p.leftOut.Add(n)
				}
			}()
			p.tell(n)
		}
		return
	}
	if p.armed.CompareAndSwap(false, true) {
		time.AfterFunc(time.Second, p.tellLater)
	}
}

func (p *pace) now() int64 { return int64(time.Since(p.start)) }
