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
	want := regexp.MustCompile(`^serving example.Orders on 127.0.0.1:\d+, .*
list 1: OK: three orders of CN=alice <CN=Example>
list 2: OK: three orders of CN=alice <CN=Example>
(?:list \d+: OK: three orders of CN=alice <CN=Example>
)*list \d+: ResourceExhausted: rate limit exceeded; retry in \S+
  RetryInfo: \S+s
  grpc-retry-pushback-ms: [1-9]\d*
list with a retry policy: OK after \S+: three orders of CN=alice <CN=Example>
export 2, .*: ResourceExhausted: rate limit exceeded; retry in \S+s
  RetryInfo: \S+s
  grpc-retry-pushback-ms: -1
message 1: OK: change 1 done
message 2: OK: change 2 done
message 3: OK: change 3 done
message 4: ResourceExhausted: rate limit exceeded; retry in \S+s
  RetryInfo: \S+s
  grpc-retry-pushback-ms: -1
100 unknown methods: 5 Unimplemented, 95 ResourceExhausted
health, always free: SERVING
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%s\nwant %v", out.String(), want)
	}
}
