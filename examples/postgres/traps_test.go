package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ration-go/ration/limiter/storekit"
	"github.com/ration-go/ration/limiter/storetest"
)

// careless is a backend that falls into a trap: it differs from the right one in one
// of these fields.
type careless struct {
	backend
	options pgx.TxOptions
	lock    func(ctx context.Context, tx pgx.Tx, raw [][]byte, locks []int64) error
	load    string
}

func (c *careless) Update(
	ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	tx, err := c.pool.BeginTx(ctx, c.options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	raw, locks := arguments(keys)
	if err := c.lock(ctx, tx, raw, locks); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, c.load, raw)
	records, err := load(rows, decide)
	if err != nil {
		return err
	}
	if err := write(ctx, tx, records); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func advisoryLocks(ctx context.Context, tx pgx.Tx, _ [][]byte, locks []int64) error {
	_, err := tx.Exec(ctx, lockKeys, locks)
	return err
}

// careful returns a careless backend that falls into no trap.
func careful(pool *pgxpool.Pool) *careless {
	return &careless{
		backend: backend{pool}, options: pgx.TxOptions{IsoLevel: pgx.ReadCommitted},
		lock: advisoryLocks, load: loadKeys,
	}
}

// falls checks that the rule catches the backend, which change makes careless, and
// passes the right one. What only concurrent requests show may take several runs.
func falls(t *testing.T, called, url string, change func(*careless)) {
	t.Helper()
	broken := func(pool *pgxpool.Pool) storekit.Backend {
		c := careful(pool)
		change(c)
		return c
	}
	for _, r := range storetest.Rules() {
		if r.Number+" "+r.Name != called {
			continue
		}
		if err := r.Run(t, harness(t, url, right)); err != nil {
			t.Errorf("the right backend: %v", err)
		}
		for range 20 {
			if err := r.Run(t, harness(t, url, broken)); err != nil {
				t.Log(err)
				return
			}
		}
		t.Errorf("the careless backend passes %q", called)
		return
	}
	t.Fatalf("no such rule: %s", called)
}

func TestTrap_ForUpdateLocksNoAbsentRow(t *testing.T) {
	falls(t, "R12 several stores, no lost debit", database(t), func(c *careless) {
		c.lock = func(ctx context.Context, tx pgx.Tx, raw [][]byte, _ []int64) error {
			_, err := tx.Exec(ctx, `select from ration_accounts where key = any($1::bytea[])
				order by key for update`, raw)
			return err
		}
	})
}

func TestTrap_AStatementThatLocksAndLoadsSeesWhatWasBefore(t *testing.T) {
	falls(t, "R12 several stores, no lost debit", database(t), func(c *careless) {
		c.lock = func(context.Context, pgx.Tx, [][]byte, []int64) error { return nil }
		c.load = `with locked as materialized (
				select count(pg_advisory_xact_lock(
					('x' || encode(substr(key, 1, 8), 'hex'))::bit(64)::bigint))
				from unnest($1::bytea[]) key
			)
			select clock_timestamp(), state from locked
			cross join unnest($1::bytea[]) with ordinality k(key, n)
			left join ration_accounts using (key) order by n`
	})
}

func TestTrap_NowIsTheStartOfTheTransaction(t *testing.T) {
	falls(t, "R2 the clock is read after the locks", database(t), func(c *careless) {
		c.load = strings.Replace(loadKeys, "clock_timestamp()", "now()", 1)
	})
}

// The right backend keeps its promise whatever the default level is.
func TestTrap_TheDefaultIsolationLevelDiffers(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			url := database(t) + "?default_transaction_isolation=" + strings.Replace(level, " ", "%20", 1)
			unstated := func(c *careless) { c.options = pgx.TxOptions{} }
			falls(t, "R12 no lost debit", url, unstated)
			falls(t, "R12 several stores, several budgets", url, unstated)
		})
	}
}

func TestTrap_LocksWithoutOneOrderAreADeadlock(t *testing.T) {
	falls(t, "R12 several stores, several budgets", database(t), func(c *careless) {
		c.lock = func(ctx context.Context, tx pgx.Tx, _ [][]byte, locks []int64) error {
			for _, i := range rand.Perm(len(locks)) {
				if err := advisoryLocks(ctx, tx, nil, locks[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// A careful backend falls into none, so that it is the trap that the rules see.
func TestTrap_IsWhatTheRulesSee(t *testing.T) {
	careful := func(pool *pgxpool.Pool) storekit.Backend { return careful(pool) }
	for _, r := range storetest.Rules() {
		if strings.HasPrefix(r.Name, "several stores") || r.Name == "the clock is read after the locks" {
			if err := r.Run(t, harness(t, database(t), careful)); err != nil {
				t.Error(err)
			}
		}
	}
}
