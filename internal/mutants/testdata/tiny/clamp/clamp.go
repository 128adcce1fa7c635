// Package clamp is code to be broken.
package clamp

// Between returns n, but at least low and at most high.
func Between(n, low, high int) int {
	if n < low {
		return low
	}
	return min(n, high)
}

const step = 1

// Sum adds the first n numbers up.
func Sum(n int) (total int) {
	for n > 0 {
		total += n
		n -= step
	}
	return total
}

// Never has a mutant that does not compile.
func Never() bool {
	panic("no")
}
