//go:build !race

package model_test

const slowdown = 1
