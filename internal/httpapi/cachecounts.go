package httpapi

import "sync/atomic"

// cacheCounts are what this process has served of one operation's stored answers since it began.
type cacheCounts struct {
	hits   atomic.Int64 // fresh
	stale  atomic.Int64
	misses atomic.Int64 // asked for, and there was none that might be served
	bytes  atomic.Int64 // of the bodies served
}
