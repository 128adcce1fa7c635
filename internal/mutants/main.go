// Command mutants breaks the code in small ways, one at a time, and runs the
// tests against each: a mutant that no test notices shows what is not tested.
//
//	go run ./internal/mutants [-list] [-run REGEXP] [PACKAGE ...]
//
// Comparisons are flipped, remainders and carries dropped, clamps removed, what
// is rounded up is rounded down, operators are swapped, constants are off by
// one, conditions always or never hold, and statements, loops and fields are
// left out. A mutant that hangs is noticed; one that does not compile is none.
//
// Nothing is written into the tree: go test gets the mutants as an overlay. All
// of a package are in one test program, in which each function begins with a
// switch over copies of its body, one for each mutant; an environment variable
// chooses. Only what stands outside functions is built alone.
//
// Survivors that no test can notice, or none should, are explained in
// equivalent.txt. It fails where more than 5 % of the mutants survive without an
// explanation, or where an explanation has no survivor.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// target is a package to mutate.
type target struct {
	dir   string
	files []string // nil: all but tests
	tests []suite  // those that notice, the fastest first
}

// suite is the tests of a package that run together.
type suite struct {
	pkg  string
	skip string // which not to run, as of go test
}

var targets = []target{
	{"internal/account", nil,
		[]suite{{"internal/account", ""}, {"internal/model", ""}, {"limiter", ""}}},
	{"internal/instant", nil, []suite{{"internal/instant", ""}, {"limiter", ""}}},
	{"internal/pick", nil, []suite{{"limiter/memstore", slowest}, {"internal/model", ""}}},
	{"limiter", []string{"bucket.go", "budget.go", "decision.go", "key.go", "limit.go",
		"limiter.go", "reservation.go"}, []suite{{"limiter", slowest}, {"limiter", ""}}},
	{"limiter/memstore", nil, []suite{
		{"limiter/memstore", slowest}, {"internal/model", ""}, {"limiter/memstore", floods}}},
}

// What suites skip: tests that need seconds, and those that need many.
const (
	slowest = "Flood|Displace|Promise|Linear|Hammer|Model|HundredThousand|Goroutines|NoToken|HasSeen"
	floods  = "Flood|Displace|TinyCap"
)

// explanations is where survivors are explained, from the module's root.
const explanations = "internal/mutants/equivalent.txt"

// tolerated is how many of a hundred mutants may survive without an explanation.
const tolerated = 5

func main() {
	list := flag.Bool("list", false, "print the mutants and run nothing")
	run := flag.String("run", "", "only mutants whose line matches the `regexp`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, *list, *run, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, list bool, run string, packages []string) error {
	only, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, explanations))
	if err != nil {
		return err
	}
	explained, err := parseExplanations(string(text))
	if err != nil {
		return err
	}
	c := check{root: root, only: only, explained: explained, grace: 10 * time.Second,
		out: os.Stdout, progress: os.Stderr}
	chosen := targets
	if len(packages) > 0 {
		chosen = slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
			return !slices.Contains(packages, t.dir) && !slices.Contains(packages, "./"+t.dir)
		})
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutants for %v", packages)
	}
	if list {
		return c.list(chosen)
	}
	return c.run(ctx, chosen)
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// check is one run over some targets.
type check struct {
	root      string
	only      *regexp.Regexp
	explained []*explanation
	grace     time.Duration // what any test may take before it is said to hang
	out       io.Writer
	progress  io.Writer
	seen      []string // directories whose mutants were run
}

// mutants returns the mutants of a target that the user asked for.
func (c *check) mutants(t target) ([]mutant, error) {
	files := t.files
	if files == nil {
		found, err := filepath.Glob(filepath.Join(c.root, t.dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") {
				files = append(files, filepath.Base(file))
			}
		}
	}
	var all []mutant
	for _, file := range files {
		name := path.Join(t.dir, file)
		src, err := os.ReadFile(filepath.Join(c.root, name))
		if err != nil {
			return nil, err
		}
		found, err := mutate(name, src)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return slices.DeleteFunc(all, func(m mutant) bool { return !c.only.MatchString(m.String()) }), nil
}

// list prints the mutants. An explanation that is of none of them is an error
// here already.
func (c *check) list(targets []target) error {
	for _, t := range targets {
		mutants, err := c.mutants(t)
		if err != nil {
			return err
		}
		for _, m := range mutants {
			fmt.Fprintln(c.out, m)
			c.explain(m)
		}
		c.seen = append(c.seen, t.dir)
	}
	return c.stale()
}

// run runs the tests against all mutants of the targets, and reports.
func (c *check) run(ctx context.Context, targets []target) error {
	var sum totals
	var text bytes.Buffer
	for _, t := range targets {
		mutants, err := c.mutants(t)
		if err != nil {
			return err
		}
		n, err := c.judge(ctx, t, mutants)
		if err != nil {
			return err
		}
		c.seen = append(c.seen, t.dir)
		fmt.Fprintf(&text, "%-20s %v\n", t.dir, n)
		sum.add(n)
	}
	fmt.Fprintf(&text, "%-20s %v\n", "total", sum)
	if _, err := text.WriteTo(c.out); err != nil {
		return err
	}
	return errors.Join(sum.verdict(), c.stale())
}

// judge runs the tests against mutants of a target, counts what becomes of them,
// and prints the unexplained survivors.
func (c *check) judge(ctx context.Context, t target, mutants []mutant) (totals, error) {
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return totals{}, err
	}
	defer os.RemoveAll(temp)
	r := runner{builder: builder{root: c.root, dir: t.dir, temp: temp, mutants: mutants},
		tests: t.tests, grace: c.grace}
	if err := r.prepare(ctx); err != nil {
		return totals{}, err
	}
	var n totals
	for f := range r.runAll(ctx) {
		if f.err != nil {
			return n, f.err
		}
		c.count(&n, f)
		fmt.Fprintf(c.progress, "\r%s %d/%d ", t.dir, n.all()+n.invalid, len(mutants))
	}
	fmt.Fprintln(c.progress)
	return n, ctx.Err()
}

func (c *check) count(n *totals, f finding) {
	switch {
	case f.fate == dead:
		n.killed++
	case f.fate == stillborn:
		n.invalid++
	case c.explain(f.mutant):
		n.explained++
	default:
		n.unexplained++
		fmt.Fprintf(c.out, "%v\n\t%s\n", f.mutant, f.mutant.source)
	}
}

// explain reports whether the survival of m is explained.
func (c *check) explain(m mutant) bool {
	found := false
	for _, e := range c.explained {
		if e.matches(m) {
			e.used, found = true, true
		}
	}
	return found
}

// stale returns an error that names the explanations without a survivor; a run
// over some mutants only cannot know.
func (c *check) stale() error {
	if c.only.String() != "" {
		return nil
	}
	var stale []error
	for _, e := range c.explained {
		if !e.used && slices.Contains(c.seen, path.Dir(e.file)) {
			stale = append(stale, fmt.Errorf("%s:%d: explains no survivor: %s: %s: %s",
				explanations, e.at, e.file, e.function, e.change))
		}
	}
	return errors.Join(stale...)
}
