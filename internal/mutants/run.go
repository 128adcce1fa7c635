package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// workers is how many mutants run at once.
const workers = 2

// fate is what becomes of a mutant.
type fate uint8

const (
	alive     fate = iota
	dead           // a test failed, or hung
	stillborn      // does not compile
)

type finding struct {
	mutant mutant
	fate   fate
}

// runner runs the tests of a target.
type runner struct {
	root     string
	tests    []suite // in this order until one fails
	timeouts []time.Duration
}

// prepare runs the tests on the code as it is: they must pass, and the time that
// they need tells when a mutant hangs.
func (r *runner) prepare(ctx context.Context) error {
	for _, tests := range r.tests {
		start := time.Now()
		if out, err := r.command(ctx, tests, time.Hour).CombinedOutput(); err != nil {
			return fmt.Errorf("the tests of %s must pass first: %w\n%s", tests.pkg, err, out)
		}
		r.timeouts = append(r.timeouts, 20*time.Second+4*time.Since(start))
	}
	return nil
}

// command returns go test for a suite. What a mutant may allocate is bounded.
func (r *runner) command(
	ctx context.Context, tests suite, timeout time.Duration, flags ...string,
) *exec.Cmd {
	args := append([]string{"test", "-short", "-failfast", "-count=1", "-vet=off",
		"-ldflags=-s -w", "-timeout=" + timeout.String(), "-skip=" + tests.skip,
		`-exec=sh -c 'ulimit -v 4000000 2>/dev/null; exec "$0" "$@"'`}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+tests.pkg)...)
	cmd.Dir = r.root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// runAll yields what becomes of the mutants, in the order in which they end. It
// ends early with ctx.
func (r *runner) runAll(ctx context.Context, mutants []mutant) iter.Seq[finding] {
	work, found := make(chan mutant), make(chan finding)
	go func() {
		defer close(work)
		for _, m := range mutants {
			if ctx.Err() != nil {
				return
			}
			work <- m
		}
	}()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for m := range work {
				found <- finding{m, r.runOne(ctx, m)}
			}
		})
	}
	go func() {
		group.Wait()
		close(found)
	}()
	return func(yield func(finding) bool) {
		for f := range found {
			if ctx.Err() == nil && !yield(f) {
				return
			}
		}
	}
}

// runOne runs the tests against one mutant until a suite fails.
func (r *runner) runOne(ctx context.Context, m mutant) fate {
	overlay, err := r.overlay(m)
	if err != nil {
		panic(err) // no room for a file
	}
	defer os.RemoveAll(filepath.Dir(overlay))
	for i, tests := range r.tests {
		out, err := r.command(ctx, tests, r.timeouts[i], "-overlay="+overlay).CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
		case bytes.Contains(out, []byte("[build failed]")),
			bytes.Contains(out, []byte("[setup failed]")):
			return stillborn
		case errors.As(err, &exit):
			return dead
		default:
			return stillborn // interrupted
		}
	}
	return alive
}

// overlay writes the mutant and the file that tells go test where it is, in a
// directory of its own.
func (r *runner) overlay(m mutant) (string, error) {
	original := filepath.Join(r.root, m.file)
	src, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(m.file))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(file, m.apply(src), 0o600), os.WriteFile(overlay, text, 0o600))
}

// totals are the mutants of a package.
type totals struct{ killed, explained, unexplained, invalid int }

func (t *totals) add(u totals) {
	t.killed += u.killed
	t.explained += u.explained
	t.unexplained += u.unexplained
	t.invalid += u.invalid
}

func (t totals) all() int { return t.killed + t.explained + t.unexplained }

func (t totals) String() string {
	percent := 100 * float64(t.killed) / float64(max(t.all(), 1))
	return fmt.Sprintf("%d of %d killed (%.1f %%), %d survivors explained, %d not; "+
		"%d did not compile", t.killed, t.all(), percent, t.explained, t.unexplained, t.invalid)
}

// verdict returns an error where too many survive without an explanation.
func (t totals) verdict() error {
	if 100*t.unexplained <= tolerated*t.all() {
		return nil
	}
	return fmt.Errorf("%d of %d mutants survive without an explanation, more than %d %%",
		t.unexplained, t.all(), tolerated)
}
