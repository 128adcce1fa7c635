package main

import (
	"errors"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// cutOff runs an Update in which the server ends the connection once the request is
// decided, with or without something to write, and returns its error.
func cutOff(t *testing.T, write bool) error {
	t.Helper()
	victim := connect(t, database(t)+"?application_name=victim")
	other := connect(t, database(t))
	charge := on(t.Name(), 1)
	r, err := storekit.Prepare(storekit.Take, []limiter.Charge{charge}, nil)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(now time.Time, states [][]byte) ([]storekit.Record, error) {
		var ended bool
		err := other.QueryRow(t.Context(), `select bool_and(pg_terminate_backend(pid, 60000))
			from pg_stat_activity where application_name = 'victim'`).Scan(&ended)
		if err != nil || !ended {
			t.Errorf("pg_terminate_backend: %v, %v", ended, err)
		}
		records, err := r.Decide(now, states)
		if !write {
			records = nil
		}
		return records, err
	}
	b := &backend{victim}
	err = b.Update(t.Context(), r.Keys(), decide)
	if again := b.Update(t.Context(), r.Keys(), r.Decide); again != nil {
		t.Errorf("the next Update: %v, want no error", again)
	}
	return err
}

func TestBackend_ACommitWithoutReplyIsAmbiguous(t *testing.T) {
	err := cutOff(t, false)
	var store *limiter.StoreError
	if !errors.As(err, &store) || store.Reason != storekit.Ambiguous {
		t.Errorf("Update whose commit has no reply: %v, want an Ambiguous *limiter.StoreError", err)
	}
}

func TestBackend_AConnectionLostBeforeTheCommitIsNotAmbiguous(t *testing.T) {
	err := cutOff(t, true)
	var store *limiter.StoreError
	if err == nil || errors.As(err, &store) {
		t.Errorf("Update whose connection is lost before the commit: %v, want another error", err)
	}
}

func TestStore_AServerThatIsAwayIsUnavailable(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	pool := connect(t, "postgres://postgres@127.0.0.1:"+port+"/postgres")
	_, err = newStore(t, &backend{pool}, "", nil).Take(t.Context(), []limiter.Charge{on("alice", 1)})
	var store *limiter.StoreError
	if !errors.As(err, &store) || store.Reason != storekit.Unavailable {
		t.Errorf("Take while no server listens: %v, want an Unavailable *limiter.StoreError", err)
	}
}
