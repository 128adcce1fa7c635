package keytext_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/keytext"
	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

var alice = limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"}

// Stored accounts are found by these texts: changing one forgets what was used.
func TestEncoder_AppendIsWhatStoresKeep(t *testing.T) {
	long := strings.Repeat("x", 97)
	tests := []struct {
		name, secret string
		key          limiter.Key
		want         string
	}{
		{"all-parts", "s", limiter.Key{
			Budget: "orders", Principal: alice, Route: "GET /orders/{id}", Workload: "batch job",
		}, "orders:AtjPX33WH7nA_VGN5r8btw:GET%20/orders/%7Bid%7D:batch%20job"},
		{"no-secret", "", limiter.Key{Budget: "orders", Principal: alice},
			"orders:3gm9_Vv9CshC-RQjptzGFw"},
		{"everybody", "s", limiter.Key{Budget: "all"}, "all"},
		{"long-route", "s", limiter.Key{Budget: "all", Route: long}, "all::~Kr22nRVvWH9wSsj0Xa-qEQ"},
		{"longest-route-as-it-is", "s", limiter.Key{Budget: "all", Route: long[1:]},
			"all::" + long[1:]},
		{"no-separator-from-a-part", "s", limiter.Key{Budget: "a:b", Route: "{c}*?[~\n\xff"},
			"a%3Ab::%7Bc%7D%2A%3F%5B%7E%0A%FF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := keytext.New([]byte(tt.secret)).Append([]byte("x"), tt.key)
			assert.Equal(t, "x"+tt.want, string(got))
		})
	}
}

// What the package comment states can be computed with any HMAC.
func TestEncoder_PrincipalIsAnHMACOverPartsWithTheirLengths(t *testing.T) {
	mac := hmac.New(sha256.New, []byte("s"))
	mac.Write([]byte("p\x04user\x04acme\x05alice"))
	want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	got := keytext.New([]byte("s")).Append(nil, limiter.Key{Budget: "b", Principal: alice})
	assert.Equal(t, "b:"+want, string(got))
}

func TestEncoder_KeepsTheSecretThatItWasGiven(t *testing.T) {
	secret := []byte("s")
	e := keytext.New(secret)
	want := keytext.New([]byte("s")).AppendTag(nil, alice)
	secret[0] = 't'
	assert.Equal(t, want, e.AppendTag(nil, alice))
	assert.NotEqual(t, want, keytext.New(secret).AppendTag(nil, alice))
}

func TestEncoder_TagIsThatOfTheTenant(t *testing.T) {
	tag := func(p limiter.Principal) string {
		return string(keytext.New([]byte("s")).AppendTag(nil, p))
	}
	bob := limiter.Principal{Kind: "key", Tenant: "acme", ID: "bob"}
	address := limiter.Principal{Kind: kind.Address, Tenant: "acme", ID: "alice"}
	lone := limiter.Principal{Kind: "user", ID: "alice"}
	other := limiter.Principal{Kind: "user", ID: "bob"}
	assert.Len(t, tag(alice), keytext.TagLen)
	assert.Equal(t, tag(alice), tag(bob), "one tenant")
	assert.NotEqual(t, tag(alice), tag(address), "a network is no tenant of users")
	assert.NotEqual(t, tag(lone), tag(other), "each is a tenant of its own")
	assert.Empty(t, tag(limiter.Principal{}))
	for _, p := range []limiter.Principal{alice, bob, address, lone, other} {
		assert.Equal(t, tag(p), tag(byTenant(t, p)), "%v", p)
	}
}

// byTenant returns the principal in the key of a budget ByTenant.
func byTenant(t *testing.T, p limiter.Principal) limiter.Principal {
	store := &noting{}
	l, err := limiter.New(store, []limiter.Budget{{
		Name: "team", Scope: limiter.ByTenant, Limit: limiter.PerSecond(1), OnError: limiter.Closed,
	}}, limiter.Config{})
	require.NoError(t, err)
	_, err = l.Take(t.Context(), limiter.Caller{Principal: p}, 1)
	require.NoError(t, err)
	return store.key.Principal
}

// noting is a store that notes the key of the last charge.
type noting struct {
	limiter.Store
	key limiter.Key
}

func (*noting) Check(limiter.Limit) error { return nil }

func (s *noting) Take(_ context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	s.key = charges[0].Key
	return limiter.Decision{Outcome: limiter.Allow}, nil
}

func TestEncoder_DoesNotAllocate(t *testing.T) {
	if !pools {
		t.Skip("pools forget")
	}
	e, dst := keytext.New([]byte("s")), make([]byte, 0, keytext.MaxLen)
	k := limiter.Key{Budget: "orders", Principal: alice, Route: strings.Repeat("{", 99)}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		e.Append(dst, k)
		e.AppendTag(dst, k.Principal)
	}))
}

func TestEncoder_IsSafeForConcurrentUse(t *testing.T) {
	e := keytext.New([]byte("s"))
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			k := limiter.Key{Budget: "b", Principal: alice, Workload: string(rune('a' + i))}
			want := string(e.Append(nil, k))
			for range 200 {
				assert.Equal(t, want, string(e.Append(nil, k)))
			}
		})
	}
	callers.Wait()
}

var textForm = regexp.MustCompile(
	`^([A-Za-z0-9._/%-]*|~[A-Za-z0-9_-]{22})(:([A-Za-z0-9_-]{22})?` +
		`(:([A-Za-z0-9._/%-]*|~[A-Za-z0-9_-]{22})){0,2})?$`)

// FuzzAppend moves bytes between the parts of a key: no two keys that differ
// have one text, and every text has the form and the length that it may have.
func FuzzAppend(f *testing.F) {
	long := strings.Repeat("/{id}", 40)
	f.Add("a", "user", "acme", "alice", "GET /", "w", uint8(0), uint8(1))
	f.Add("a:", "b", "", "", "", "", uint8(0), uint8(0))
	f.Add("a", "", "", "", "", "b", uint8(4), uint8(1))
	f.Add("", "u", "a\x05alice", "", "", "", uint8(2), uint8(2))
	f.Add("~", "", "", "", long, long, uint8(4), uint8(3))
	f.Add("%3A", "", "", "", ":", "\x00", uint8(0), uint8(2))
	e := keytext.New([]byte("secret"))
	f.Fuzz(func(t *testing.T, budget, kind, tenant, id, route, workload string, from, n uint8) {
		parts := [6]string{budget, kind, tenant, id, route, workload}
		moved := parts
		i := int(from) % 5
		cut := min(int(n), len(moved[i]))
		moved[i+1] = moved[i][len(moved[i])-cut:] + moved[i+1]
		moved[i] = moved[i][:len(moved[i])-cut]
		a, b := text(e, parts), text(e, moved)
		assert.Equal(t, parts == moved, a == b, "%q %q", a, b)
		swapped := parts
		swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
		assert.Equal(t, parts == swapped, a == text(e, swapped), a)
		for _, s := range []string{a, b} {
			assert.Regexp(t, textForm, s)
			assert.False(t, strings.HasSuffix(s, ":"), s)
			assert.LessOrEqual(t, len(s), keytext.MaxLen)
		}
	})
}

func text(e *keytext.Encoder, parts [6]string) string {
	return string(e.Append(nil, limiter.Key{
		Budget:    parts[0],
		Principal: limiter.Principal{Kind: parts[1], Tenant: parts[2], ID: parts[3]},
		Route:     parts[4], Workload: parts[5],
	}))
}

func BenchmarkAppend(b *testing.B) {
	e, dst := keytext.New([]byte("secret")), make([]byte, 0, keytext.MaxLen)
	k := limiter.Key{Budget: "orders", Principal: alice, Route: "GET /orders/{id}"}
	b.ReportAllocs()
	for b.Loop() {
		e.Append(dst, k)
	}
}
