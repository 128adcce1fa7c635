package main

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

const (
	lockKeys = `select pg_advisory_xact_lock(k) from unnest($1::bigint[]) k`
	loadKeys = `select clock_timestamp(), state from unnest($1::bytea[]) with ordinality k(key, n)
		left join ration_accounts using (key) order by n`
	writeRow = `insert into ration_accounts (key, state, full_at) values ($1, $2, $3)
		on conflict (key) do update set state = excluded.state, full_at = excluded.full_at`
	deleteRow = `delete from ration_accounts where key = $1`
)

// backend keeps accounts in the table of schema.sql.
type backend struct{ pool *pgxpool.Pool }

// Update names its isolation level, since the default of a role can be another. It
// locks in a statement of its own, so that the next one sees what was committed
// before, and locks hashes rather than rows, since a row may not exist yet.
func (b *backend) Update(
	ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	raw, locks := arguments(keys)
	if _, err := tx.Exec(ctx, lockKeys, locks); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, loadKeys, raw) // load returns its error
	records, err := load(rows, decide)
	if err == nil {
		err = write(ctx, tx, records)
	}
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil { // perhaps only the reply is lost
		return &limiter.StoreError{Reason: storekit.Ambiguous, Err: err}
	}
	return nil
}

// View needs no locks: its one statement sees all keys at one moment.
func (b *backend) View(ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc) error {
	raw, _ := arguments(keys)
	rows, _ := b.pool.Query(ctx, loadKeys, raw)
	_, err := load(rows, decide)
	return err
}

// arguments returns the keys as pgx takes them, and the numbers of their locks.
func arguments(keys []storekit.Key) (raw [][]byte, locks []int64) {
	for _, key := range keys {
		raw = append(raw, key[:])
		locks = append(locks, int64(binary.BigEndian.Uint64(key[:])))
	}
	return raw, locks
}

// load reads the clock and the states, in the order of the keys, and decides.
func load(rows pgx.Rows, decide storekit.DecideFunc) ([]storekit.Record, error) {
	var now time.Time
	var state []byte
	var states [][]byte
	_, err := pgx.ForEachRow(rows, []any{&now, &state}, func() error {
		states = append(states, state)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return decide(now, states)
}

// write writes the records; a Reset deletes the rows.
func write(ctx context.Context, tx pgx.Tx, records []storekit.Record) error {
	batch := &pgx.Batch{}
	for _, r := range records {
		if r.State == nil {
			batch.Queue(deleteRow, r.Key[:])
		} else {
			batch.Queue(writeRow, r.Key[:], r.State, r.FullAt)
		}
	}
	return tx.SendBatch(ctx, batch).Close() // one round trip, none for no records
}
