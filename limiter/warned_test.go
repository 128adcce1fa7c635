package limiter_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// A hook that calls the limiter would never return if a lock were held.
func TestObserver_IsWarnedOfMisuseAndNotOfFailures(t *testing.T) {
	var codes []string
	var l *limiter.Limiter
	add := func(of, code string) {
		assert.Equal(t, "api", of)
		codes = append(codes, code)
		require.NoError(t, l.Reload([]limiter.Budget{{Name: "b", Scope: limiter.ByPrincipal,
			Limit: limiter.PerHour(2), OnError: limiter.Open}}))
	}
	down := &failing{err: errors.New("down")}
	l = limiter.Must(limiter.New(down,
		[]limiter.Budget{{Name: "b", Limit: limiter.PerHour(2), OnError: limiter.Open}},
		limiter.Config{Name: "api", Logger: slog.New(slog.DiscardHandler),
			Observer: limiter.Observer{Warned: add}.And(limiter.Observer{Warned: add})}))
	_, err := l.Take(t.Context(), bob, 1)
	require.Error(t, err)
	assert.Empty(t, codes)
	l.Adapter().Warn(t.Context(), "no-route", "message")
	assert.Equal(t, []string{"no-route", "scope-changed", "scope-changed", "no-route"}, codes)
}
