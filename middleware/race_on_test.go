//go:build race

package middleware_test

// The race detector makes a request many times as slow.
const slowdown = 10
