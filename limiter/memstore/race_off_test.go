//go:build !race

package memstore_test

const slowdown = 1
