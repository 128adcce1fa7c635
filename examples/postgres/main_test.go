package main

import (
	"bytes"
	"context"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

func TestRun_SharesABudgetBetweenRuns(t *testing.T) {
	for i, want := range []int{5, 0} {
		var out bytes.Buffer
		if err := run(t.Context(), &out, database(t)); err != nil {
			t.Fatal(err)
		}
		allowed, denied := strings.Count(out.String(), "allow "), strings.Count(out.String(), "deny ")
		if allowed != want || denied != 10-want {
			t.Errorf("run %d allowed %d and denied %d requests, want %d and %d:\n%s",
				i+1, allowed, denied, want, 10-want, &out)
		}
	}
}

// Whatever a store needs is public.
func TestModule_ImportsNothingInternal(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			if strings.Contains(imported.Path.Value, "/internal/") {
				t.Errorf("%s imports %s", name, imported.Path.Value)
			}
		}
	}
}

func TestBackend_HasAtMost100Lines(t *testing.T) {
	text, err := os.ReadFile("backend.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 100 {
		t.Errorf("backend.go has %d lines", n)
	}
}

func TestSweep_DeletesFullRowsOnly(t *testing.T) {
	pool := connect(t, database(t))
	secret := t.Name()
	ago := func() time.Time { return time.Now().Add(-time.Hour) }
	past := newStore(t, &backend{pool}, secret, ago)
	full, spent := on("full", 1), on("spent", 60)
	full.Limit = limiter.PerSecond(5)
	if _, err := past.Take(t.Context(), []limiter.Charge{full, spent}); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for charge, want := range map[limiter.Charge]int{full: 0, spent: 1} {
		key, rows := storekit.KeyOf(charge.Key, []byte(secret)), 0
		err := pool.QueryRow(t.Context(),
			`select count(*) from ration_accounts where key = $1`, key[:]).Scan(&rows)
		if err != nil || rows != want {
			t.Errorf("rows of %s after a sweep: %d, %v, want %d",
				charge.Key.Principal.ID, rows, err, want)
		}
	}
}

func TestSweep_SkipsARowThatIsBeingWritten(t *testing.T) {
	pool := connect(t, database(t))
	secret := t.Name()
	charge := on("alice", 60)
	ago := func() time.Time { return time.Now().Add(-48 * time.Hour) }
	charges := []limiter.Charge{charge}
	if _, err := newStore(t, &backend{pool}, secret, ago).Take(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
	key := storekit.KeyOf(charge.Key, []byte(secret))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(),
		`update ration_accounts set full_at = now() + interval '1 day' where key = $1`, key[:])
	if err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), pool); err != nil { // and does not wait
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	err = pool.QueryRow(t.Context(),
		`select count(*) from ration_accounts where key = $1`, key[:]).Scan(&rows)
	if err != nil || rows != 1 {
		t.Errorf("rows after a sweep: %d, %v, want the one that was being written", rows, err)
	}
}

func TestReset_CuresARowThatCannotBeRead(t *testing.T) {
	pool := connect(t, database(t))
	secret := t.Name()
	store := newStore(t, &backend{pool}, secret, nil)
	charges := []limiter.Charge{on("alice", 60)}
	if _, err := store.Take(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
	key := storekit.KeyOf(charges[0].Key, []byte(secret))
	_, err := pool.Exec(t.Context(),
		`update ration_accounts set state = '\x00ff' where key = $1`, key[:])
	if err != nil {
		t.Fatal(err)
	}
	if d, err := store.Take(t.Context(), charges); err == nil {
		t.Fatalf("Take on a row that cannot be read: %+v, want an error", d)
	}
	if err := store.Reset(t.Context(), charges); err != nil {
		t.Fatal(err)
	}
	if d, err := store.Take(t.Context(), charges); err != nil || !d.Allowed() {
		t.Errorf("Take after a Reset: %+v, %v, want allow", d, err)
	}
}
