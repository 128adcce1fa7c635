package oracle_test

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/lab/model"
	"github.com/ration-go/ration/internal/lab/oracle"
	"github.com/ration-go/ration/limiter"
)

// These are sequences that were worked out by hand.
func TestStore_FollowsTheRules(t *testing.T) {
	tests := []struct{ name, stream, want string }{
		{"refill", `
			1 take 0 a 5 2/1s burst=5
			2 take 100000000 a 1 2/1s burst=5
			3 take 1000000000 a 2 2/1s burst=5
			4 take 1401000000 a 1 2/1s burst=5`,
			"allow; deny 400ms; allow; deny 99ms"},
		{"clock-back", `
			1 take 0 a 3 1/1s burst=3
			2 take 2000000000 a 1 1/1s burst=3
			3 take -5000000000 a 1 1/1s burst=3
			4 take 2000000000 a 1 1/1s burst=3`,
			"allow; allow; allow; deny 1s"},
		{"window", `
			1 take 7000000000 a 3 3/10s fixed-window
			2 take 8000000000 a 1 3/10s fixed-window
			3 take 10000000000 a 3 3/10s fixed-window`,
			"allow; deny 2s; allow"},
		{"log-left-boundary-is-exclusive", `
			1 take 0 a 1 3/10s rolling-log
			2 take 1000000000 a 2 3/10s rolling-log
			3 take 9999999999 a 1 3/10s rolling-log
			4 take 10000000000 a 1 3/10s rolling-log
			5 take 10000000000 a 2 3/10s rolling-log`,
			"allow; allow; deny 1ns; allow; deny 1s"},
		{"all-or-nothing", `
			1 take 0 a 2 2/60s; b 1 10/60s
			2 take 0 a 1 2/60s; b 1 10/60s
			3 take 0 b 9 10/60s`,
			"allow; deny 30s; allow"},
		{"debt", `
			1 take 0 a 2 1/1s burst=5
			2 settle 0 1 +9
			3 take 0 a 1 1/1s burst=5
			4 take 0 a 0 1/1s burst=5`,
			"allow; deny 6s; allow"},
		{"a-bucket-lowered-and-then-a-window", `
			1 take 0 a 5 10/1h
			2 take 0 a 1 5/1h
			3 take 0 a 9 10/1h fixed-window
			4 take 0 a 4 10/1h fixed-window
			5 take 0 a 1 20/1h fixed-window`,
			"allow; allow; deny 1h0m0s; allow; deny 1h0m0s"},
		{"a-bucket-then-windows", `
			1 take 0 a 5 10/1h
			2 take 0 a 1 5/1h fixed-window
			3 take 0 a 5 10/1h rolling-log
			4 take 0 a 4 10/1h rolling-log`,
			"allow; allow; deny 1h0m0s; allow"},
		{"a-late-debit", `
			1 take 0 a 1 10/10s rolling-log
			2 settle 12000000000 1 +9
			3 take 12000000000 a 2 10/10s rolling-log
			4 take 12000000000 a 1 10/10s rolling-log`,
			"allow; deny 10s; allow"},
		{"never-decides-before-deny", `
			1 take 0 a 1 1/1m; b 1 5/1m
			2 take 0 a 1 1/1m; b 6 5/1m`,
			"allow; never"},
		{"lower-and-raise", `
			1 take 0 a 2 20/60s
			2 take 0 a 12 10/60s
			3 take 0 a 1 10/60s
			4 take 0 a 10 30/60s`,
			"allow; never; allow; deny 2s"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := model.Parse(test.stream)
			require.NoError(t, err)
			m := oracle.New()
			var got []string
			for _, step := range s {
				if step.Op == model.Settle {
					c := s[0].Charges
					c[0].Cost = step.Corrections[0]
					require.NoError(t, m.Settle(step.At, c))
					continue
				}
				d, err := m.Take(step.At, step.Charges)
				require.NoError(t, err)
				text := d.Outcome.String()
				if d.Outcome == limiter.Deny {
					text += " " + d.RetryAfter.String()
				}
				got = append(got, text)
			}
			assert.Equal(t, test.want, strings.Join(got, "; "))
		})
	}
}

func TestStore_TokensIsExact(t *testing.T) {
	m, k := oracle.New(), model.NewKey("a", "")
	third := limiter.Limit{Tokens: 1, Per: 3, Burst: 2}
	_, err := m.Take(0, []limiter.Charge{{Key: k, Limit: third, Cost: 2}})
	require.NoError(t, err)
	assert.Equal(t, big.NewRat(4, 3), m.Tokens(4, k, third))
}
