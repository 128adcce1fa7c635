package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ration-go/ration/internal/lab/redistest"
	"github.com/ration-go/ration/limiter"
)

func TestScenarios(t *testing.T) {
	t.Run("memory", func(t *testing.T) { playAll(t, "") })
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		server.Do("SET", "scenarios", "another program's")
		playAll(t, server.Addr)
		if keys := fmt.Sprint(server.Do("KEYS", "*")); keys != "[scenarios]" {
			t.Errorf("keys left on the server: %s", keys)
		}
	})
}

func playAll(t *testing.T, addr string) {
	t.Helper()
	const want = `ExamHall tenant accepted=2 rejected=3
ExamHall tenant+route accepted=4 rejected=1
payments fixed=6 rolling=6
HTTP statuses=200,200,429 Retry-After-present=true
   100 a minute  labels  requests  by label  held  by account  held  and workload  held
        web app       1        90        90     1          90     1            90     2
     mobile app       1       100       100     1         100     1           100     2
  partner batch       1       340       100     1         100     1           100     2
   indexing bot      40      4000      4000    40         100     1           100    17
            all      43      4530      4290    43         390     4           390    23
an hour of 40 new labels a minute: kept for 60 minutes accounts=2400, dropped when full accounts=40
token_bucket.json cases=40 mismatches=0
`
	var out strings.Builder
	if err := play(&out, addr); err != nil {
		t.Fatal(err)
	}
	var results strings.Builder
	explained := 0
	for line := range strings.Lines(out.String()) {
		switch {
		case strings.HasPrefix(line, "# "):
			explained++
		case strings.HasPrefix(line, "#"), line == "\n":
		default:
			results.WriteString(line)
		}
	}
	if got := results.String(); got != want {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
	if explained < 5 {
		t.Errorf("%d scenarios are explained:\n%s", explained, out.String())
	}
}

func TestScenarios_RemoveTheirKeysAndReportAServerThatIsAway(t *testing.T) {
	server := redistest.Start(t)
	open, cleanUp := inRedis(server.Addr)
	if err := examHall(io.Discard, open); err != nil {
		t.Fatal(err)
	}
	if n := fmt.Sprint(server.Do("DBSIZE")); n == "0" {
		t.Fatal("the scenario wrote no keys")
	}
	if err := cleanUp(); err != nil {
		t.Fatal(err)
	}
	if n := fmt.Sprint(server.Do("DBSIZE")); n != "0" {
		t.Errorf("%s keys are left", n)
	}
	if err := play(io.Discard, "localhost:1"); err == nil {
		t.Error("a server that is not there went unnoticed")
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
