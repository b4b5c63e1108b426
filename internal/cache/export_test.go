package cache

const MaxInline = maxInline

// Canonical is what Key hashes of a JSON payload.
var Canonical = canonical
