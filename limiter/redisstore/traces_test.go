//go:build !faults

package redisstore_test

// traces is how many waits are tried.
const traces = 5000
