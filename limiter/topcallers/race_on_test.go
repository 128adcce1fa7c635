//go:build race

package topcallers_test

// The race detector makes a request many times slower, so streams are shorter with it.
const slowdown = 25
