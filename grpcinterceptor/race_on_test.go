//go:build race

package grpcinterceptor_test

// mostAllocations is how many a message may cost. The race detector drops a part of what
// is pooled.
const mostAllocations = 1.5
