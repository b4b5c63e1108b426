package history

import (
	"strconv"
	"time"
)

// The keys of this package. All share one hash tag, so each script here runs on Redis Cluster.
//
//	fb:{history}:5s:<n>:<backend>  hash    a chunk: count → 3 bytes for each of 120 buckets; a TTL
//	                                       of 2 h after its end
//	fb:{history}:1m:<n>:<backend>  hash    the same in minutes; a TTL of 48 h after its end
//	fb:{history}:processes         hash    process → number of its last call, when it was, and
//	                                       since when there was no gap; each call renews the
//	                                       TTL of 48 h
//	fb:{history}:sampler           string  the bucket that was sampled last; a TTL of a minute
//	fb:{history}:events            stream  the events; each renews the TTL of 48 h
//	fb:{history}:once:<x>          string  marks an event as recorded; a TTL of 10 minutes at most
const (
	prefix       = "fb:{history}:"
	keyProcesses = prefix + "processes"
	keySampler   = prefix + "sampler"
	keyEvents    = prefix + "events"
	prefixOnce   = prefix + "once:"
)

// keep is how long minutes and events are kept.
const keep = 48 * time.Hour

// tier is a resolution of the tallies.
type tier struct {
	name string
	step time.Duration
	keep time.Duration
}

// fine and coarse are the tiers, as add.lua has them.
var (
	fine   = tier{"5s", 5 * time.Second, 2 * time.Hour}
	coarse = tier{"1m", time.Minute, keep}
)

// perChunk is the number of buckets in a chunk.
const perChunk = 120

// bucket is the number of the bucket that t is in.
func (t tier) bucket(at time.Time) int64 { return at.UnixMicro() / t.step.Microseconds() }

// at is when a bucket begins.
func (t tier) at(bucket int64) time.Time {
	return time.UnixMicro(bucket * t.step.Microseconds()).UTC()
}

// key is the key of a chunk.
func (t tier) key(backend string, chunk int64) string {
	return prefix + t.name + ":" + strconv.FormatInt(chunk, 10) + ":" + backend
}
