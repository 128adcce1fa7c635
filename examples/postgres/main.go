// Command postgres limits callers across processes that share a PostgreSQL database:
// backend.go is a whole store, on package storekit.
//
//	go run . postgres://user@host/database
//
// asks for ten reports for one caller, who may have five an hour. Run it twice, or in
// two terminals at once: together they get five, and the others are denied with the
// wait until the next.
package main

import (
	"context"
	_ "embed" // the table
	"fmt"
	"io"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

//go:embed schema.sql
var schema string

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: postgres URL")
	}
	if err := run(context.Background(), os.Stdout, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	store, err := storekit.New(&backend{pool}, storekit.Config{Name: "postgres"})
	if err != nil {
		return err
	}
	reports, err := limiter.New(store, []limiter.Budget{{
		Name: "reports", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(5), OnError: limiter.Closed,
	}}, limiter.Config{})
	if err != nil {
		return err
	}
	alice := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}}
	for range 10 {
		d, err := reports.Take(ctx, alice, 1)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, d.Outcome, "remaining", d.Remaining, "retry after", d.RetryAfter)
	}
	return sweep(ctx, pool) // a service does this every minute or so
}

// sweepRows looks again at a row that has been written meanwhile, and skips one that
// is being written: waiting for it could be a deadlock.
const sweepRows = `delete from ration_accounts where key in (
	select key from ration_accounts where full_at <= clock_timestamp()
	limit 1000 for update skip locked)`

// sweep deletes the rows of accounts that are full, some at a time, so that no
// request waits for long.
func sweep(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		done, err := pool.Exec(ctx, sweepRows)
		if err != nil || done.RowsAffected() < 1000 {
			return err
		}
	}
}
