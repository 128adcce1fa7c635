//go:build !race

package redisstore_test

const slowdown = 1
