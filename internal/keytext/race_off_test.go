//go:build !race

package keytext_test

const pools = true
