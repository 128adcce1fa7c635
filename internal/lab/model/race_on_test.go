//go:build race

package model_test

// The race detector makes a step ten times as slow.
const slowdown = 10
