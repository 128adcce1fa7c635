package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ration-go/ration/limiter"
)

func TestScenarios(t *testing.T) {
	const want = `ExamHall tenant accepted=2 rejected=3
ExamHall tenant+route accepted=4 rejected=1
payments fixed=6 rolling=6
HTTP statuses=200,200,429 Retry-After-present=true
token_bucket.json cases=40 mismatches=0
`
	var out strings.Builder
	if err := run(&out, memory); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != want {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
}

// A store whose clock runs fast must not conform.
func TestConformance_SeesAMismatch(t *testing.T) {
	fast := func(now func() time.Time) (limiter.Store, error) {
		return memory(func() time.Time { return start.Add(now().Sub(start) * 1001 / 1000) })
	}
	var out strings.Builder
	if err := conformance(&out, fast); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "mismatches=0") {
		t.Error("a clock that runs fast by 0.1 % went unnoticed")
	}
}
