//go:build race

package keytext_test

// Under the race detector a sync.Pool forgets at random.
const pools = false
