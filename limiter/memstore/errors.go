package memstore

import "github.com/ration-go/ration/limiter"

// wrong returns an error for a field of this package.
func wrong(field string, value any, reason string) *limiter.ConfigError {
	return &limiter.ConfigError{Package: "memstore", Field: field, Value: value, Reason: reason}
}
