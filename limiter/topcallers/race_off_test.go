//go:build !race

package topcallers_test

const slowdown = 1
