//go:build !race

package middleware_test

const slowdown = 1
