package main

import (
	"strings"
	"testing"
)

func TestRun_PrintsWhoIsLetIn(t *testing.T) {
	const want = `Successes are free, also 1000 of them; they give back no failure:
  192.0.2.1    as alice   correct horse   200: 1000  401: 0  429: 0
  198.51.100.1 as user-x  guess           200: 0  401: 20  429: 10
  198.51.100.1 as mallory battery staple  200: 0  401: 0  429: 1
Many addresses guess one account, and lock strangers out of it:
  203.0.113.x  as alice   guess           200: 0  401: 10  429: 90
  192.0.2.1    as alice   correct horse   200: 0  401: 0  429: 1
  192.0.2.1    as alice   correct horse   200: 1  401: 0  429: 0
6 minutes later one more is let in:
  192.0.2.1    as alice   correct horse   200: 1  401: 0  429: 0
`
	var out strings.Builder
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != want {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
}
