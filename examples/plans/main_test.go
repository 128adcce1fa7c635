package main

import (
	"strings"
	"testing"
)

func TestRun_PrintsWhatEachPlanGives(t *testing.T) {
	const want = `hobby (free)     ann     3 of 4, then refused by the user's budget for 20s
hobby (free)     ben     2 of 4, then refused by the team's budget for 12s
acme  (paid)     cleo   10 of 12, then refused by the user's budget for 6s
acme  (paid)     dora   10 of 12, then refused by the user's budget for 6s
acme  (paid)     emil    0 of 1, then refused by the team's budget for 3s
ops   (internal) finn 1000 of 1000
hobby pays: what was used stays used, and comes back faster
hobby (paid)     ann     0 of 1, then refused by the user's budget for 6s
hobby (paid)     ann     1 of 2, then refused by the user's budget for 6s
`
	var out strings.Builder
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != want {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
}
