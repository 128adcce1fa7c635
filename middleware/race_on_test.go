//go:build race

package middleware_test

// The race detector makes a request many times slower, on a busy machine.
const slowdown = 25
