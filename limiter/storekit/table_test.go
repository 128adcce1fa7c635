package storekit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/limiter/storetest"
)

// table is a Backend with a lock for each account, and what tests do to it.
type table struct {
	mu    sync.Mutex
	rows  map[storekit.Key][]byte
	locks map[storekit.Key]*sync.Mutex
	fail  atomic.Uint32 // a storetest.Moment, for the next Update

	reruns bool             // decide is also called in transactions that are given up
	sweep  bool             // full rows are deleted at every chance
	clock  func() time.Time // by which they are full
	full   map[storekit.Key]time.Time
}

func newTable() *table {
	return &table{
		clock: time.Now,
		rows:  map[storekit.Key][]byte{},
		locks: map[storekit.Key]*sync.Mutex{},
		full:  map[storekit.Key]time.Time{},
	}
}

func (b *table) lock(key storekit.Key) (unlock func()) {
	b.mu.Lock()
	lock := b.locks[key]
	if lock == nil {
		lock = &sync.Mutex{}
		b.locks[key] = lock
	}
	b.mu.Unlock()
	lock.Lock()
	return lock.Unlock
}

func (b *table) load(keys []storekit.Key) [][]byte {
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	states := make([][]byte, len(keys))
	for i, key := range keys {
		if b.sweep && b.rows[key] != nil && !now.Before(b.full[key]) {
			delete(b.rows, key)
		}
		states[i] = slices.Clone(b.rows[key])
	}
	return states
}

// rerun calls decide as transactions do that are given up: with nothing, with
// garbage, and with what is stored, at other instants.
func (b *table) rerun(keys []storekit.Key, decide storekit.DecideFunc) {
	garbage := make([][]byte, len(keys))
	for i := range garbage {
		garbage[i] = []byte("garbage")
	}
	for _, states := range [][][]byte{garbage, b.load(keys), make([][]byte, len(keys))} {
		_, _ = decide(time.Unix(1, 0), states)
	}
}

var errGone = errors.New("the server has gone away")

func (b *table) Update(
	_ context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	for _, key := range keys {
		defer b.lock(key)()
	}
	if b.reruns {
		b.rerun(keys, decide)
	}
	records, err := decide(time.Now(), b.load(keys))
	if err != nil {
		return err
	}
	moment := storetest.Moment(b.fail.Swap(0))
	if moment == storetest.BeforeCommit {
		return errGone
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		b.rows[r.Key], b.full[r.Key] = slices.Clone(r.State), r.FullAt
		if r.State == nil {
			delete(b.rows, r.Key)
		}
	}
	if moment == storetest.AtCommit {
		return &limiter.StoreError{Reason: storekit.Ambiguous, Err: errGone}
	}
	return nil
}

func (b *table) View(
	_ context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	if b.reruns {
		b.rerun(keys, decide)
	}
	_, err := decide(time.Now(), b.load(keys))
	return err
}
