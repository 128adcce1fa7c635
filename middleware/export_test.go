package middleware

import "net/http"

// Combinations are the writers around inner with each set of five optional
// interfaces; Optional says which one a writer has.
func Combinations(inner http.ResponseWriter) []http.ResponseWriter {
	var all []http.ResponseWriter
	for _, combine := range combinations {
		all = append(all, combine(&recorder{inner: inner}))
	}
	return all
}

// Optional returns the optional interfaces of w as bits.
var Optional = optional
