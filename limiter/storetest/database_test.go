package storetest_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ration-go/ration/limiter/storekit"
)

// database is a database in memory that several processes share: rows, a lock for
// each row, and a clock, which moves whenever somebody looks at it.
type database struct {
	mu    sync.Mutex
	rows  map[storekit.Key][]byte
	locks map[storekit.Key]chan struct{} // each holds one value while it is locked
	ticks atomic.Int64
}

func newDatabase() *database {
	return &database{
		rows: map[storekit.Key][]byte{}, locks: map[storekit.Key]chan struct{}{},
	}
}

func (db *database) now() time.Time { return time.Unix(1_800_000_000, db.ticks.Add(1)) }

// tx is a transaction. Its locks last until end.
type tx struct {
	db     *database
	held   []chan struct{}
	start  time.Time
	writes []storekit.Record
}

func (db *database) begin() *tx { return &tx{db: db, start: db.now()} }

var errLeft = errors.New("the context of the transaction has ended")

func (t *tx) lock(ctx context.Context, key storekit.Key) error {
	t.db.mu.Lock()
	lock := t.db.locks[key]
	if lock == nil {
		lock = make(chan struct{}, 1)
		t.db.locks[key] = lock
	}
	t.db.mu.Unlock()
	select {
	case lock <- struct{}{}:
		t.held = append(t.held, lock)
		return nil
	case <-ctx.Done():
		return errLeft
	}
}

// load returns the rows as they were at one moment.
func (t *tx) load(keys []storekit.Key) [][]byte {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	states := make([][]byte, len(keys))
	for i, key := range keys {
		states[i] = t.db.rows[key]
	}
	return states
}

// commit writes all or, if ctx has ended before, nothing.
func (t *tx) commit(ctx context.Context) error {
	runtime.Gosched() // a round trip
	if ctx.Err() != nil {
		return errLeft
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	for _, r := range t.writes {
		t.db.rows[r.Key] = r.State
	}
	return nil
}

func (t *tx) end() {
	for _, lock := range t.held {
		<-lock
	}
}
