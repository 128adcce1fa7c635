// Package redisstore keeps accounts in a Redis or Valkey server, so that any
// number of processes share them.
package redisstore
