//go:build race

package redisstore_test

// slowdown is by how much the race detector slows long streams down.
const slowdown = 6
