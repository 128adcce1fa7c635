//go:build !race

package grpcinterceptor_test

// mostAllocations is how many a message may cost.
const mostAllocations = 1.0
