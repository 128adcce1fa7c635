package memstore

// NewSharded is New for a store of so many shards, a power of two up to 256.
var NewSharded = newStore
