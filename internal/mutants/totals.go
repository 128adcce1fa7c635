package main

import "fmt"

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
