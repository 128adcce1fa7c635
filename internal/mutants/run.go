package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	err    error // the tests could not run
}

// runner runs the tests of a target against its mutants.
type runner struct {
	builder
	tests    []suite // in this order until one fails
	grace    time.Duration
	programs []string
	timeouts []time.Duration
}

// prepare builds the tests with all mutants in them and runs them on the code as
// it is: they must pass, and the time that they need tells when a mutant hangs.
func (r *runner) prepare(ctx context.Context) error {
	r.invalid = make([]bool, len(r.mutants))
	overlay, err := r.settle(ctx)
	if err != nil {
		return err
	}
	if r.programs, err = r.compile(ctx, overlay, r.temp); err != nil {
		return err
	}
	for i, tests := range r.tests {
		start := time.Now()
		cmd := r.command(ctx, tests, r.programs[i], 0, time.Hour)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("the tests of %s must pass first: %w\n%s", tests.pkg, err, out)
		}
		r.timeouts = append(r.timeouts, r.grace+4*time.Since(start))
	}
	return nil
}

// compile returns the test program of each suite.
func (r *runner) compile(ctx context.Context, overlay, out string) ([]string, error) {
	programs := make([]string, len(r.tests))
	for i, tests := range r.tests {
		if i > 0 && tests.pkg == r.tests[i-1].pkg {
			programs[i] = programs[i-1]
			continue
		}
		var err error
		if programs[i], err = compileTests(ctx, r.root, tests.pkg, overlay, out); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// command runs a test program. What it may allocate is bounded.
func (r *runner) command(
	ctx context.Context, tests suite, program string, number int, timeout time.Duration,
) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 4000000 2>/dev/null; exec "$0" "$@"`,
		program, "-test.short", "-test.failfast", "-test.skip="+tests.skip,
		"-test.timeout="+timeout.String())
	cmd.Dir = filepath.Join(r.root, tests.pkg)
	cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(number))
	cmd.WaitDelay = time.Second
	return cmd
}

// runAll yields what becomes of the mutants, in the order in which they end. It
// ends early with ctx.
func (r *runner) runAll(ctx context.Context) iter.Seq[finding] {
	ctx, cancel := context.WithCancel(ctx)
	work, found := make(chan int), make(chan finding)
	go func() {
		defer close(work)
		for i := range r.mutants {
			if ctx.Err() != nil {
				return
			}
			work <- i
		}
	}()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range work {
				fate, err := r.runOne(ctx, i)
				found <- finding{r.mutants[i], fate, err}
			}
		})
	}
	go func() {
		group.Wait()
		close(found)
	}()
	return func(yield func(finding) bool) {
		defer cancel()
		for f := range found {
			if ctx.Err() == nil && !yield(f) {
				cancel() // and let the workers end
			}
		}
	}
}

// runOne runs the tests against one mutant until a suite fails.
func (r *runner) runOne(ctx context.Context, i int) (fate, error) {
	if r.invalid[i] {
		return stillborn, nil
	}
	programs := r.programs
	if r.mutants[i].body == (body{}) {
		dir, err := os.MkdirTemp(r.temp, "")
		if err != nil {
			return stillborn, err
		}
		defer os.RemoveAll(dir)
		if programs, err = r.compileAlone(ctx, r.mutants[i], dir); err != nil {
			return stillborn, nil
		}
	}
	for j, tests := range r.tests {
		run := func() error { return r.command(ctx, tests, programs[j], i+1, r.timeouts[j]).Run() }
		err := run()
		if err != nil && !failed(err) && ctx.Err() == nil { // something ended it
			err = run()
		}
		switch {
		case failed(err):
			return dead, nil
		case err != nil:
			return stillborn, fmt.Errorf("%s: %w", programs[j], err)
		}
	}
	return alive, nil
}

// failed reports whether a test failed (1) or the program crashed (2).
func failed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2)
}

// compileAlone builds the tests with one mutant of what no function holds.
func (r *runner) compileAlone(ctx context.Context, m mutant, dir string) ([]string, error) {
	original := filepath.Join(r.root, m.file)
	src, err := os.ReadFile(original)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, filepath.Base(m.file))
	overlay, err := writeOverlay(
		dir, map[string]string{original: file}, file, string(m.apply(src)))
	if err != nil {
		return nil, err
	}
	return r.compile(ctx, overlay, dir)
}
