package storetest

import (
	"strings"
	"time"

	"github.com/ration-go/ration/limiter"
)

var keyRules = []Rule{
	{"K5", "one key, one account", "Keys that differ in any part, by however little, are " +
		"different accounts; no separator, case, length or encoding makes two of them one.",
		oneKeyOneAccount},
	{"K5", "a key is its parts", "Keys with equal parts are the same account, whatever the " +
		"strings are made of.", keyIsItsParts},
}

func holder(kind, tenant, id string) limiter.Key {
	principal := limiter.Principal{Kind: kind, Tenant: tenant, ID: id}
	return limiter.Key{Budget: "b", Principal: principal}
}

// lookalikes are different keys that a careless encoding takes for one.
func lookalikes() []limiter.Key {
	keys := []limiter.Key{
		// Parts at another place.
		{}, {Budget: "a"}, {Route: "a"}, {Workload: "a"},
		holder("a", "", ""), holder("", "a", ""), holder("", "", "a"),
		// The user 127.0.0.1 and the address.
		holder("user", "", "127.0.0.1"), holder("address", "", "127.0.0.1"),
		// Case, width, composition, invisible characters, invalid UTF-8.
		holder("user", "t", "alice"), holder("user", "t", "Alice"), holder("user", "t", "alice "),
		holder("user", "t", "alice\u200b"), holder("user", "t", "\uff41lice"),
		holder("user", "t", "\u00e9"), holder("user", "t", "e\u0301"),
		holder("user", "t", "\xff"), holder("user", "t", "\ufffd"), holder("user", "t", "\xfe"),
		holder("user", "t", "alice\x00"), holder("user", "t", "\x00alice"),
		// Numbers, and what formats as they do.
		holder("user", "t", "1"), holder("user", "t", "01"), holder("user", "t", "1.0"),
		holder("user", "1", ""), holder("user", "t", "true"), holder("user", "t", "nil"),
		// Long, and different at the end or in the middle only.
		holder("user", "t", strings.Repeat("x", 1000)),
		holder("user", "t", strings.Repeat("x", 1001)),
		holder("user", "t", strings.Repeat("x", 1000)+"y"),
		holder("user", "t", strings.Repeat("x", 500)+"y"+strings.Repeat("x", 499)),
	}
	// A separator in one part, or between two.
	for _, s := range []string{
		":", "::", "|", "/", ",", ".", "-", "_", "\x00", "\n", " ", "{", "}", "{}", "%3A", "\\", "\\:",
		"\x1f", "\"", "'", "*", "?", "[", "\u2028",
	} {
		keys = append(keys,
			holder("u"+s, "v", "w"), holder("u", s+"v", "w"), holder("u", "v"+s, "w"),
			holder("u", "v", s+"w"),
			holder("u"+s+"v", "", "w"), holder("u", "", "v"+s+"w"), holder("u", "v"+s+"w", ""),
			limiter.Key{Budget: "b", Route: "r" + s, Workload: "w"},
			limiter.Key{Budget: "b", Route: "r", Workload: s + "w"},
			limiter.Key{Budget: "b", Route: "r" + s + "w"},
			limiter.Key{Budget: "b", Workload: "r" + s + "w"},
			limiter.Key{Budget: "b" + s + "r", Workload: "w"},
		)
	}
	return keys
}

func oneKeyOneAccount(p *probe) {
	l := limiter.Limit{Tokens: 1, Per: time.Hour}
	keys := lookalikes()
	for i, k := range keys {
		d := p.take(limiter.Charge{Key: k, Limit: l, Cost: 1})
		if !d.Allowed() {
			violated("the first request of %+v, after those of %d other keys: %+v, want allow",
				k, i, d)
		}
	}
	for _, k := range keys {
		if d := p.take(limiter.Charge{Key: k, Limit: l, Cost: 1}); d.Outcome != limiter.Deny {
			violated("the second request of %+v: %+v, want deny", k, d)
		}
	}
}

func keyIsItsParts(p *probe) {
	l := limiter.PerHour(2)
	bytes := []byte("alice")
	key := holder("user", "t", string(bytes))
	p.allowed(limiter.Charge{Key: key, Limit: l, Cost: 1})
	copy(bytes, "mallory")
	again := holder("us"+"er", strings.Clone("t"), strings.Join([]string{"al", "ice"}, ""))
	p.allowed(limiter.Charge{Key: again, Limit: l, Cost: 1})
	p.denied(limiter.Charge{Key: key, Limit: l, Cost: 1})
}
