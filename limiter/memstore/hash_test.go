package memstore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
)

// keyParts set one part of a key each.
var keyParts = map[string]func(k *limiter.Key, part string){
	"budget":   func(k *limiter.Key, part string) { k.Budget = part },
	"kind":     func(k *limiter.Key, part string) { k.Principal.Kind = part },
	"tenant":   func(k *limiter.Key, part string) { k.Principal.Tenant = part },
	"id":       func(k *limiter.Key, part string) { k.Principal.ID = part },
	"route":    func(k *limiter.Key, part string) { k.Route = part },
	"workload": func(k *limiter.Key, part string) { k.Workload = part },
}

func newHasher() *hasher {
	h := new(hasher)
	h.start(shardCount)
	return h
}

func (h *hasher) name(k limiter.Key) fingerprint {
	f, _ := h.key(&k, new(caller))
	return f
}

// Each third of a fingerprint depends on each part of a key, so that all 96 bits
// distinguish the values of a part.
func TestHasher_AllBitsDependOnEachPart(t *testing.T) {
	h := newHasher()
	for name, set := range keyParts {
		for _, rest := range []limiter.Key{{}, {Budget: "b", Route: "r", Workload: "w",
			Principal: limiter.Principal{Kind: "k", Tenant: "t", ID: "i"}}} {
			thirds := [3]map[uint32]bool{{}, {}, {}}
			const values = 300
			for i := range values {
				key := rest
				set(&key, fmt.Sprintf("%s %d", strings.Repeat("long", 30), i))
				f := h.name(key)
				for j, third := range []uint32{uint32(f.high >> 32), uint32(f.high), f.low} {
					thirds[j][third] = true
				}
			}
			for j, third := range thirds { // two are equal by chance once in 100,000 times
				assert.GreaterOrEqual(t, len(third), values-1, "third %d, by %s", j, name)
			}
		}
	}
}

// A string in one part of a key differs from the same in another part and from none.
func TestHasher_DistinguishesTheParts(t *testing.T) {
	h := newHasher()
	seen := map[fingerprint]string{h.name(limiter.Key{}): "none"}
	for name, set := range keyParts {
		var key limiter.Key
		set(&key, "x")
		f := h.name(key)
		assert.Empty(t, seen[f], "%s", name)
		seen[f] = name
	}
	for i := range 40 {
		name := strings.Repeat("x", 1+i/2)
		f := h.overflow(&pool{name: name, region: &region{id: uint64(i % 2)}})
		assert.Empty(t, seen[f], "the overflow account of %s", name)
		seen[f] = "overflow account of " + name
	}
}

// A key has one fingerprint and one shard, whatever keys came before it, and no other
// key has the same fingerprint.
func TestHasher_CachesChangeNoFingerprint(t *testing.T) {
	h := newHasher()
	parts := [...]string{"", "x", "y", "xy"}
	seen := map[fingerprint]bool{}
	var last caller
	for _, i := range rand.Perm(1 << 12) {
		part := func(n int) string { return parts[i>>(2*n)%4] }
		key := &limiter.Key{Budget: part(0), Route: part(1), Workload: part(2),
			Principal: limiter.Principal{Kind: part(3), Tenant: part(4), ID: part(5)}}
		name, shard := h.key(key, &last)
		fresh := &hasher{a: h.a, b: h.b, mask: h.mask}
		sameName, sameShard := fresh.key(key, new(caller))
		require.Equal(t, sameName, name, "%+v", key)
		require.Equal(t, sameShard, shard, "%+v", key)
		require.False(t, seen[name], "%+v", key)
		seen[name] = true
	}
}

func TestHasher_AnEmptyPartAddsNothing(t *testing.T) {
	h, l := newHasher(), lanes{3, 4}
	assert.Equal(t, l, h.addName(l, "", &weightRoute))
	assert.Equal(t, l, h.addPart(l, "", &weightID))
}

// A product with an odd number loses no bits of a hash, one with an even number does.
func TestHasher_WeighsPartsByOddNumbers(t *testing.T) {
	seen := map[uint64]bool{}
	for _, at := range []weight{
		weightBudget, weightKind, weightTenant, weightID, weightRoute, weightWorkload, weightOverflow,
	} {
		for _, weight := range []uint64{at.a, at.b} {
			assert.EqualValues(t, 1, weight%2, "%#x", weight)
			assert.False(t, seen[weight], "%#x", weight)
			seen[weight] = true
		}
	}
}

func TestHasher_KeepsTheCallerForTheNextKey(t *testing.T) {
	h := newHasher()
	var last caller
	key := limiter.Key{Budget: "a", Principal: limiter.Principal{Tenant: "t", ID: "i"}}
	h.key(&key, &last)
	require.Same(t, &key.Principal, last.principal)
	last.lanes.a++ // shows that they are used
	next := limiter.Key{Budget: "b", Principal: key.Principal}
	f, _ := h.key(&next, &last)
	assert.NotEqual(t, h.name(next), f)
	for _, other := range []limiter.Principal{{Tenant: "t", ID: "j"}, {Tenant: "s", ID: "i"}} {
		k := limiter.Key{Budget: "b", Principal: other}
		f, _ := h.key(&k, &last)
		assert.Equal(t, h.name(k), f)
	}
}

// cached returns the names in the cache, by their index.
func (h *hasher) cached() map[int]*names {
	found := map[int]*names{}
	for i := range h.known {
		if n := h.known[i].Load(); n != nil {
			found[i] = n
		}
	}
	return found
}

func TestHasher_NeverEvictsNamesFromTheCache(t *testing.T) {
	h := newHasher()
	first := limiter.Key{Budget: "a", Route: "r", Principal: limiter.Principal{Kind: "k"}}
	f := h.name(first)
	kept := h.cached()
	require.Len(t, kept, 1)
	for i, n := range kept {
		for _, second := range []limiter.Key{
			{Budget: "b", Route: "r", Principal: limiter.Principal{Kind: "k"}},
			{Budget: "a", Route: "r", Principal: limiter.Principal{Kind: "l"}},
		} {
			require.NotEqual(t, f, h.name(second))
		}
		require.Same(t, n, h.known[i].Load())
		require.Equal(t, f, h.name(first))
		h.known[i].Store(&names{budget: n.budget, kind: n.kind, route: n.route, lanes: lanes{1, 2}}) // shows that they are used
		require.NotEqual(t, f, h.name(first))
	}
}

// At least half of a service's names are cached.
func TestHasher_CachesTheNamesOfAService(t *testing.T) {
	h := newHasher()
	const routes = 26
	for i := range routes {
		for _, budget := range []string{"user", "tenant"} {
			h.name(limiter.Key{Budget: budget, Route: "GET /v1/" + string(rune('a'+i)),
				Principal: limiter.Principal{Kind: "user"}})
		}
	}
	assert.GreaterOrEqual(t, len(h.cached()), routes, "of %d", 2*routes)
}

// All budgets of a caller are in one shard. Callers, and keys without a caller, are
// distributed over all shards.
func TestHasher_ChoosesTheShardByTheCaller(t *testing.T) {
	h := newHasher()
	shardOf := func(k limiter.Key) uint8 {
		_, number := h.key(&k, new(caller))
		return number
	}
	callers, routes := map[uint8]bool{}, map[uint8]bool{}
	for i := range 10_000 {
		some := fmt.Sprint(i)
		who := limiter.Principal{Kind: "user", ID: some}
		number := shardOf(limiter.Key{Budget: "a", Principal: who})
		callers[number] = true
		other := limiter.Key{Budget: "b", Route: "r", Workload: "w", Principal: who}
		require.Equal(t, number, shardOf(other))
		routes[shardOf(limiter.Key{Budget: "a", Route: some})] = true
	}
	assert.Len(t, callers, shardCount)
	assert.Len(t, routes, shardCount)
}

// All addresses of a network, and the network itself, are in one shard. Other callers,
// and addresses without a network, are distributed.
func TestHasher_ChoosesTheShardOfAnAddressByItsNetwork(t *testing.T) {
	h := newHasher()
	for _, test := range []struct {
		kind, tenant string
		one          bool
	}{
		{kind.Address, "198.51.100.0/24", true},
		{kind.Address, "", false},
		{kind.Certificate, "issuer", false},
		{"user", "acme", false},
	} {
		shards := map[uint8]bool{}
		for i := range 100 {
			_, number := h.key(&limiter.Key{Budget: "a", Principal: limiter.Principal{
				Kind: test.kind, Tenant: test.tenant, ID: fmt.Sprint(i)}}, new(caller))
			shards[number] = true
		}
		if test.one {
			_, number := h.key(&limiter.Key{Budget: "b", Route: "r", Principal: limiter.Principal{
				Kind: test.kind, Tenant: test.tenant}}, new(caller))
			shards[number] = true
		}
		assert.Equal(t, test.one, len(shards) == 1, "%+v", test)
	}
}

func TestShardsFor_KeepsOverflowAccountsFew(t *testing.T) {
	for accounts, shards := range map[int]int{
		1: 1, 127: 1, 255: 1, 256: 2, 1000: 4, 10_000: 64, 32_767: 128, 32_768: 256, 1_000_000: 256,
		math.MaxInt: 256,
	} {
		assert.Equal(t, shards, shardsFor(accounts), accounts)
	}
}

// Budgets whose names have one length are all cached, with and without a route.
func TestHasher_CachesNamesOfOneLength(t *testing.T) {
	var h hasher
	h.start(1)
	for _, route := range []string{"", "GET /v1/exports/{id}"} {
		for i := range 8 {
			h.names(&limiter.Key{Budget: fmt.Sprintf("per-user-%d", i), Route: route})
		}
	}
	assert.Len(t, h.cached(), 16)
}
