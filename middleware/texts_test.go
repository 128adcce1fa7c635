package middleware

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/limiter"
)

// Requests that are refused together for the first time leave room for other budgets.
func TestTexts_KeepsOneOfThoseMadeTogether(t *testing.T) {
	var cache texts
	l := limiter.PerSecond(1)
	for range maxTexts {
		cache.add(&text{budget: "own", limit: l}) // as many goroutines would
	}
	assert.Len(t, cache.read(), 1)
	assert.Same(t, cache.of("other", &l), cache.of("other", &l))
}
