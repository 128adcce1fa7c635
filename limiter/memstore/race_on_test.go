//go:build race

package memstore_test

// The race detector makes a decision ten times as slow.
const slowdown = 10
