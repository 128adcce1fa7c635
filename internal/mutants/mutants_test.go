package main

import (
	"bytes"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func changes(t *testing.T, function string) []string {
	t.Helper()
	found, err := mutate("f.go", []byte("package p\n\n"+function))
	require.NoError(t, err)
	var all []string
	for _, m := range found {
		_, change, _ := strings.Cut(m.String(), ": f: ")
		all = append(all, change)
	}
	return all
}

func TestMutate_BreaksWhatArithmeticConsistsOf(t *testing.T) {
	for _, test := range []struct {
		name, function string
		want           []string
	}{
		{"comparisons", `func f() bool { return x < y }`,
			[]string{"x < y -> x <= y", "x < y -> x >= y"}},
		{"conditions", `func f() { if x == y { g() } }`,
			[]string{"x == y: always", "x == y: never", "removed: g()"}},
		{"both operands", `func f() { if a && b || !c { g() } }`,
			[]string{"a && b || !c: always", "a && b: never", "a: always", "b: always", "!c: never",
				"removed: g()"}},
		{"cases", `func f() { switch { case x > 0: } }`,
			[]string{"x > 0: always", "x > 0: never", "x > 0 -> x >= 0"}},
		{"operators", `func f() int { return a + b*c }`,
			[]string{"a + b*c -> a - b*c", "b*c -> b / c"}},
		{"remainders", `func f() { q, r := u.div(v); g(q, r%x) }`,
			[]string{"dropped: r of q, r := u.div(v)", "removed: g(q, r%x)", "r%x -> r"}},
		{"clamps", `func f() int { return min(a, b) }`,
			[]string{"min(a, b) -> (a)", "min(a, b) -> (b)"}},
		{"wide clamps", `func f() u { return x.floorSub(y) }`,
			[]string{"x.floorSub(y) -> x.sub(y)"}},
		{"wide comparisons", `func f() bool { return x.less(y) }`,
			[]string{"x.less(y) -> !(y).less(x)"}},
		{"ceilings", `func f() uint64 { return x.ceilDiv(y) }`,
			[]string{"x.ceilDiv(y) -> rounded down"}},
		{"constants", `func f() int { return g(7, 0x80) }`, []string{"g(7, 0x80) -> g(8, 0x80)",
			"g(7, 0x80) -> g(6, 0x80)", "g(7, 0x80) -> g(7, 129)", "g(7, 0x80) -> g(7, 127)"}},
		{"statements", `func f() { x.y, z = a, b; n++; n += m }`, []string{
			"removed: x.y, z = a, b", "n++ -> n--", "removed: n++", "n += m -> n -= m", "removed: n += m"}},
		{"loops", `func f() { for range xs { g() }; for x != y { continue } }`,
			[]string{"range xs: never runs", "removed: g()", "x != y: never", "removed: continue"}},
		{"fields", `func f() t { return t{a: x, b: y} }`, []string{"removed: a: x", "removed: b: y"}},
		{"truth", `func f() bool { return true }`, []string{"true -> false"}},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, changes(t, test.function)) })
	}
}

func tiny(t *testing.T, only, explained string) (*check, *bytes.Buffer) {
	t.Helper()
	root, err := filepath.Abs("testdata/tiny")
	require.NoError(t, err)
	list, err := parseExplanations(explained)
	require.NoError(t, err)
	var out bytes.Buffer
	return &check{root: root, only: regexp.MustCompile(only), explained: list, grace: time.Second,
		out: &out, progress: io.Discard}, &out
}

var clamp = []target{{"clamp", nil, []suite{{"clamp", ""}}}}

const lowerBound = `# survivors
clamp/clamp.go: Between: n < low -> n <= low
	if n < low {
Equal numbers are the same number.
`

func TestCheck_TellsSurvivorsFromTheKilled(t *testing.T) {
	c, out := tiny(t, `n < low: never|n <= low|-> \(n\)`, lowerBound)
	assert.ErrorContains(t, c.run(t.Context(), clamp), "1 of 3 mutants survive")
	assert.Equal(t, `clamp/clamp.go:9: Between: min(n, high) -> (n)
	return min(n, high)
clamp                1 of 3 killed (33.3 %), 1 survivors explained, 1 not; 0 did not compile
total                1 of 3 killed (33.3 %), 1 survivors explained, 1 not; 0 did not compile
`, out.String())
}

func TestCheck_RefusesAnExplanationWithoutASurvivor(t *testing.T) {
	c, _ := tiny(t, "", lowerBound)
	assert.NoError(t, c.stale(), "its package was not looked at")
	c.seen = []string{"clamp"}
	assert.EqualError(t, c.stale(), "internal/mutants/equivalent.txt:2: explains no survivor: "+
		"clamp/clamp.go: Between: n < low -> n <= low")
	mutants, err := c.mutants(clamp[0])
	require.NoError(t, err)
	for _, m := range mutants {
		c.explain(m)
	}
	assert.NoError(t, c.stale())
}

func TestTotals_TolerateFewSurvivors(t *testing.T) {
	assert.NoError(t, totals{killed: 90, explained: 5, unexplained: 5, invalid: 9}.verdict())
	assert.ErrorContains(t, totals{killed: 90, explained: 4, unexplained: 6}.verdict(),
		"6 of 100 mutants survive without an explanation, more than 5 %")
}

func TestCheck_AMutantThatHangsIsKilled(t *testing.T) {
	c, out := tiny(t, "removed: n -= step", "")
	assert.NoError(t, c.run(t.Context(), clamp), out)
	assert.Contains(t, out.String(), "1 of 1 killed")
}

func TestCheck_BreaksWhatStandsOutsideFunctions(t *testing.T) {
	c, out := tiny(t, "step: 1 -> 2", "")
	assert.NoError(t, c.run(t.Context(), clamp), out)
	assert.Contains(t, out.String(), "1 of 1 killed")
}

func TestCheck_WhatDoesNotCompileIsNoMutant(t *testing.T) {
	c, out := tiny(t, "Never", "")
	assert.NoError(t, c.run(t.Context(), clamp), out)
	assert.Contains(t, out.String(), "0 survivors explained, 0 not; 1 did not compile")
}

func TestCheck_ListRunsNothing(t *testing.T) {
	c, out := tiny(t, "Between", "")
	require.NoError(t, c.list(clamp))
	assert.Equal(t, 5, strings.Count(out.String(), "\n"))
}

func TestCheck_TheTestsMustRunFirst(t *testing.T) {
	c, _ := tiny(t, "", "")
	err := c.run(t.Context(), []target{{"clamp", nil, []suite{{"absent", ""}}}})
	assert.ErrorContains(t, err, "the tests of absent do not compile")
}

func TestParseExplanations_ReportsTheLine(t *testing.T) {
	for _, text := range []string{
		"a.go: f: x", "a.go: f: x\n\n", "a.go: f: x\n\ty\n\nWhy.", "a.go: f: x\nb.go: f: x\n", "\ty",
	} {
		_, err := parseExplanations(text)
		assert.ErrorContains(t, err, "equivalent.txt:", text)
	}
}

func TestMutants_ExplanationsAreReadable(t *testing.T) {
	assert.Error(t, start(t.Context(), true, "(", nil))
	assert.ErrorContains(t, start(t.Context(), true, "", []string{"nowhere"}), "[nowhere]")
	require.NoError(t, start(t.Context(), true, "^$", nil))
}
