package main

import (
	"strings"
	"testing"
)

func TestRun_PrintsWhatAnswersCost(t *testing.T) {
	const want = `Short answers: 8000 tokens are reserved for each, and 150 charged.
  ann 100 of 100  length=150
  ann   0 of   1  length=150, then 429: retry after 1 s
Long answers: who asks for less is let in with what is left.
  ben  12 of  20  length=8000, then 429: retry after 3 s
  ben   1 of   1  length=150&max_tokens=4000
3 s later:
  ben   1 of   1  length=8000
`
	var out strings.Builder
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != want {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
}
