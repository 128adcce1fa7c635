package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestRun_IsRefusedAndThenLetIn(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v, after:\n%s", err, out.String())
	}
	want := regexp.MustCompile(`^serving /example.Greeter/Hello on 127.0.0.1:\d+: .*
call 1: OK: hello, alice
call 2: OK: hello, alice
(?:call \d+: OK: hello, alice
)*call \d+: ResourceExhausted: rate limit exceeded; retry in \S+
  RetryInfo: \S+s
  grpc-retry-pushback-ms: [1-9]\d*
with a retry policy: OK after \S+: hello, alice
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%s\nwant %v", out.String(), want)
	}
}
