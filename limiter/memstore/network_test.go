package memstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/internal/kind"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// address returns the principal of host in network, as package keying makes it.
func address(network, host string) limiter.Principal {
	return limiter.Principal{Kind: kind.Address, Tenant: network, ID: host}
}

func (c *caller) takeAs(t *testing.T, p limiter.Principal) limiter.Decision {
	c.one[0].Key.Principal = p
	return c.take(t, p.ID)
}

// If a few networks use up the share for addresses, callers of other networks are still
// allowed, unless their network shares an overflow account with one of the few.
func TestStore_AFloodFromFewNetworksLeavesRoomForOthers(t *testing.T) {
	const fresh = 1000
	maxAccounts := less(1_000_000)
	for _, networks := range []int{4, 16, 64} {
		t.Run(fmt.Sprint(networks), func(t *testing.T) {
			var c clock
			s := newStore(t, memstore.Config{MaxAccounts: maxAccounts, Now: c.now})
			s.Capabilities().Plan([]string{"api"}, nil)
			attacker := newCaller(s, "api", kind.Address, limiter.PerHour(10))
			for i := range maxAccounts * 3 / 10 {
				network := fmt.Sprintf("2001:db8:%x::/48", i%networks)
				attacker.takeAs(t, address(network, fmt.Sprintf("2001:db8:%x:%x::/64", i%networks, i)))
			}
			require.Greater(t, s.Stats().OverflowTakes, int64(maxAccounts/20-1000))
			honest := newCaller(s, "api", kind.Address, limiter.PerHour(10))
			refused := 0
			for i := range fresh {
				network := fmt.Sprintf("198.%d.%d.0/24", i>>8, i&255)
				if !honest.takeAs(t, address(network, fmt.Sprintf("198.%d.%d.7", i>>8, i&255))).Allowed() {
					refused++
				}
			}
			t.Logf("%d of %d first requests refused, %d networks flood", refused, fresh, networks)
			// Each network has one of 256 overflow accounts. The seed is random: this
			// is far from what is expected, 16 for four networks.
			assert.Less(t, refused, fresh*networks/256*2+60)
		})
	}
}

// Whatever the budget, the addresses of one network share one overflow account.
func TestStore_TheAddressesOfANetworkShareAnOverflowAccount(t *testing.T) {
	maxAccounts := less(1_000_000)
	s := newStore(t, memstore.Config{MaxAccounts: maxAccounts})
	s.Capabilities().Plan([]string{"api"}, nil)
	user := newCaller(s, "api", kind.Address, limiter.PerHour(3))
	for i := range maxAccounts / 4 { // more than the share
		user.takeAs(t, address(fmt.Sprintf("10.%d.%d.0/24", i>>16, i>>8&255), fmt.Sprint("filler-", i)))
	}
	for network := range 20 {
		name := fmt.Sprintf("2001:db8:%x::/48", network)
		for i := range 3 {
			user.takeAs(t, address(name, fmt.Sprint("one-", i)))
		}
		require.Equal(t, limiter.Deny, user.takeAs(t, address(name, "another")).Outcome)
	}
}
