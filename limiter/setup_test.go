package limiter_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// checks is the check of an adapter, and what it was shown.
type checks struct {
	refuse     error
	budgets    []string
	transports []string
	can        []limiter.Capabilities
}

func (c *checks) check(budgets []limiter.Budget, can limiter.Capabilities, transports []string) error {
	c.budgets = append(c.budgets, budgetNames(budgets))
	c.can, c.transports = append(c.can, can), slices.Clone(transports)
	return c.refuse
}

func TestSetup_ChecksTheBudgetsNowAndBeforeEachReload(t *testing.T) {
	b := limiter.Budget{Limit: limiter.PerHour(1)}
	l, _ := newLimiter(t, alike(b, "b", "a")...)
	c := &checks{refuse: errors.New("no such route")}
	shared, err := l.Adapter().Setup("mq", false, c.check)
	require.Equal(t, c.refuse, err)
	assert.Nil(t, shared)
	require.NoError(t, l.Reload(alike(b, "c")), "an adapter that was not set up checks nothing")
	assert.Equal(t, []string{"a,b"}, c.budgets, "sorted by name")

	c.refuse = nil
	_, err = l.Adapter().Setup("mq", false, c.check)
	require.NoError(t, err)
	require.NoError(t, l.Adapter().Check())
	require.NoError(t, l.Reload(alike(b, "d")))
	assert.Equal(t, []string{"a,b", "c", "c", "d"}, c.budgets)
	assert.Equal(t, "memory", c.can[0].Name)
	assert.True(t, c.can[0].NeverFails)

	c.refuse = errors.New("no such route")
	require.Equal(t, c.refuse, l.Reload(alike(b, "e")))
	assert.Equal(t, "d allow 1", peek(t, l, alice, 0), "nothing has changed")
	require.Equal(t, c.refuse, l.Adapter().Check())
	assert.Equal(t, []string{"e", "d"}, c.budgets[len(c.budgets)-2:])
}

func TestSetup_ChecksKnowAllTransports(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(1)})
	first, second, refused := new(checks), new(checks), &checks{refuse: assert.AnError}
	a := l.Adapter()
	_, err := a.Setup("http", false, first.check)
	require.NoError(t, err)
	assert.Equal(t, []string{"http"}, first.transports)
	_, err = a.Setup("tcp", false, refused.check)
	require.Error(t, err)
	assert.Equal(t, []string{"http", "tcp"}, refused.transports, "its own, too")
	_, err = a.Setup("http", false, nil)
	require.NoError(t, err)
	require.NoError(t, a.Check())
	assert.Equal(t, []string{"http"}, first.transports, "each once, and not of what was refused")
	_, err = a.Setup("grpc", false, second.check)
	require.NoError(t, err)
	require.NoError(t, a.Check())
	assert.Equal(t, []string{"http", "grpc"}, first.transports)
	assert.Equal(t, []string{"http", "grpc"}, second.transports)
}

func TestSetup_SaysWhetherARequestMayMeetTheLimiterAgain(t *testing.T) {
	l, _ := newLimiter(t, limiter.Budget{Name: "b", Limit: limiter.PerHour(1)})
	a := l.Adapter()
	first, err := a.Setup("http", false, nil)
	require.NoError(t, err)
	assert.False(t, first())
	_, err = a.Setup("http", false, (&checks{refuse: assert.AnError}).check)
	require.Error(t, err)
	assert.False(t, first(), "what is refused is no handler")
	second, err := a.Setup("grpc", false, nil)
	require.NoError(t, err)
	assert.True(t, first())
	assert.True(t, second())
}

// reticent has the methods of a Store and no other.
type reticent struct{ limiter.Store }

// A wrapper may do I/O whatever it wraps, so that it has to say if it does not.
func TestCapabilities_AStoreThatSaysNothingCanFail(t *testing.T) {
	budgets := []limiter.Budget{{Name: "b", Limit: limiter.PerHour(1)}}
	_, err := limiter.New(reticent{newStore(t, new(manual))}, budgets, limiter.Config{})
	requireConfigError(t, err, `Budgets[0] ("b").OnError`, "unset")

	var can limiter.Capabilities
	observer := limiter.Observer{Configured: func(_ string, _ []limiter.Budget, _ limiter.Store,
		c limiter.Capabilities) {
		can = c
	}}
	budgets[0].OnError = limiter.Closed
	seen := new(recorder)
	l, err := limiter.New(reticent{newStore(t, new(manual))}, budgets,
		limiter.Config{Observer: observer.And(seen.observer())})
	require.NoError(t, err)
	assert.Equal(t, "store", can.Name)
	can.Name = ""
	assert.Zero(t, can)
	require.ErrorIs(t, l.Reset(background, alice), errors.ErrUnsupported)
	seen.take()
	assert.Equal(t, "b allow 0", take(t, l, alice, 1))
	assert.Equal(t, []string{"asked default store ", "default b allow"}, seen.take())

	_, err = limiter.New(struct{ limiter.Store }{newStore(t, new(manual))}, budgets, limiter.Config{})
	require.NoError(t, err)
}

// plain is a store that says what it can do.
type plain struct {
	limiter.Store
	can limiter.Capabilities
}

func (p plain) Capabilities() limiter.Capabilities { return p.can }

func TestCapabilities_ResetGetsTheCallersOwnAccounts(t *testing.T) {
	var got []limiter.Charge
	reset := func(_ context.Context, charges []limiter.Charge) error {
		got = charges
		return assert.AnError
	}
	l := limiter.Must(limiter.New(plain{newStore(t, new(manual)),
		limiter.Capabilities{NeverFails: true, Reset: reset}}, []limiter.Budget{
		{Name: "all", Limit: limiter.PerHour(1)},
		{Name: "tenant", Scope: limiter.ByTenant, Limit: limiter.PerHour(2)},
		{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(3)},
		{Name: "other", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(4), Routes: []string{"q"}},
	}, limiter.Config{}))
	require.ErrorIs(t, l.Reset(background, alice), assert.AnError)
	assert.Equal(t, []limiter.Charge{{Key: limiter.Key{Budget: "own", Principal: alice.Principal},
		Limit: limiter.PerHour(3)}}, got)
}
