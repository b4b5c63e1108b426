package leaky

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/forebay/forebay/internal/jobs"
)

// The keys of one backend's line. With those of package jobs they share the hash tag {backend}, so
// every script here runs on Redis Cluster. Those without a TTL are bounded by the jobs that wait or
// run, or have failed.
//
//	fb:{b}:line       zset    job id → fair-queueing tag: the jobs that wait, the next one first
//	fb:{b}:delayed    zset    job id → µs when its backoff ends
//	fb:{b}:inflight   zset    job id → µs when its lease expires: released or running jobs
//	fb:{b}:deadlines  zset    job id → µs: the waiting jobs with start_within
//	fb:{b}:flows      zset    client and priority → tag of its last job; removed once the line has
//	                          passed it
//	fb:{b}:share      hash    client → number of its jobs that wait or are delayed; no field at 0
//	fb:{b}:pace       hash    last slot, gate, factor, probe, virtual time, call time, overrides
//	                          with their ends and notes
//	fb:{b}:books      hash    counts of jobs: accepted, succeeded, failed, canceled, expired,
//	                          lost; of starts, throttled calls and redrives; of repairs by kind
//	fb:{b}:failed     zset    job id → µs when it failed: for KeepFailed, or until it is redriven
//	fb:{b}:minute:<n> hash    calls that ended in that minute, by their length; a TTL of 3 minutes
//	fb:{b}:sweep      hash    how far the reconciler is, and when it may go on
//	fb:{b}:stored     hash    client → bytes of its jobs that haven't ended, if they are counted
//	                          (Offer.MaxStored); no field at 0
//	fb:{b}:kept:<tag> zset    a client's ended jobs whose bytes are counted: UUID and bytes → µs
//	                          when the record expires; '' → the negative sum of the bytes; a TTL
//	                          as long
//	fb:{b}:mine:<tag> list    a client's jobs, 23 bytes each: when it was accepted, and its id's
//	                          UUID; each new job renews the TTL
//	fb:{b}:joint:<x>  string  id of the job that is under way with Join x; removed at its end, and
//	                          a TTL beyond its longest life
//	fb:{b}:preview:<t> string  the failed jobs of a redrive's preview; a TTL of 15 minutes
//	fb:{b}:previews   zset    tokens of the newest previews → µs when they were made; a TTL as long
//	fb:{b}:callbacks  zset    job id → µs when its callback is due; see package webhook
//
// Channels: fb:{b}:wake (call Release now), fb:{b}:abort (id of a job whose call is to be aborted),
// fb:{b}:final (id of a job or subscription that has reached its final state), fb:{b}:moved (id of
// a job that waits again, is delayed or runs, or is to be canceled) and fb:{b}:callback (a callback
// is due).
const (
	keyLine = iota
	keyDelayed
	keyInflight
	keyDeadlines
	keyFlows
	keyShare
	keyPace
	keyBooks
	keyFailed
	keySweep
)

func keys(backend string) []string {
	p := jobs.KeyPrefix(backend)
	return []string{
		keyLine:      p + "line",
		keyDelayed:   p + "delayed",
		keyInflight:  p + "inflight",
		keyDeadlines: p + "deadlines",
		keyFlows:     p + "flows",
		keyShare:     p + "share",
		keyPace:      p + "pace",
		keyBooks:     p + "books",
		keyFailed:    p + "failed",
		keySweep:     p + "sweep",
	}
}

func wakeChannel(backend string) string  { return jobs.KeyPrefix(backend) + "wake" }
func abortChannel(backend string) string { return jobs.KeyPrefix(backend) + "abort" }
func movedChannel(backend string) string { return jobs.KeyPrefix(backend) + "moved" }
func finalChannel(backend string) string { return jobs.KeyPrefix(backend) + "final" }

// clientTag returns a client's name in the line's keys: short, of fixed length, and not chosen by
// the client.
func clientTag(client string) string {
	sum := sha256.Sum256([]byte(client))
	tag := hex.EncodeToString(sum[:tagBytes])
	if jobs.IsAnonymous(client) {
		tag += anonymousMark
	}
	return tag
}

const tagBytes = 8 // of SHA-256: enough to make two clients with one tag infeasible to find

// anonymousMark ends the tag of an anonymous caller, so that the trace of a job that is gone shows
// that the job belonged to its bearer. All tags are hexadecimal.
const anonymousMark = "a"
