package storetest

import "time"

// Impatient returns h with less patience for calls that hang.
func Impatient(h Harness, patience time.Duration) Harness {
	h.patience = patience
	return h
}
