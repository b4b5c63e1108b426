package leaky

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/forebay/forebay/internal/jobs"
)

// The keys of one backend's line. With those of package jobs they share the hash tag {backend}, so every
// script here runs on Redis Cluster. The line owns them: they have no TTL, and each is bounded by the jobs
// that wait or run, or have failed.
//
//	fb:{b}:line       zset   job id → fair-queueing tag: the jobs that wait, next one first
//	fb:{b}:delayed    zset   job id → µs when its backoff ends
//	fb:{b}:inflight   zset   job id → µs when its lease ends: released or running
//	fb:{b}:deadlines  zset   job id → µs: the waiting jobs that asked for start_within
//	fb:{b}:flows      zset   client and priority → tag of its last job; gone once the line has passed it
//	fb:{b}:share      hash   client → how many of its jobs wait or are delayed; no field at 0
//	fb:{b}:pace       hash   last slot, gate, factor, probe, virtual time, call time, live overrides
//	fb:{b}:books      hash   jobs ever accepted, succeeded, failed, canceled, expired, lost; starts; calls throttled; redriven;
//	                         repairs by kind
//	fb:{b}:failed     zset   job id → µs when it failed: for KeepFailed, or until it is redriven
//	fb:{b}:minute:<n> hash   calls that ended in that minute, by their length; a TTL of 3 minutes
//	fb:{b}:sweep      hash   how far the reconciler is, and when it may go on
//	fb:{b}:stored     hash   client → bytes of its jobs that haven't ended, where they are counted
//	                         (Offer.MaxStored); no field at 0
//	fb:{b}:kept:<tag> zset   a client's jobs that have ended and are counted, UUID and bytes → µs
//	                         when the record goes; '' → the
//	                         negative sum of the bytes; a TTL that reaches as far
//	fb:{b}:mine:<tag> list   a client's jobs, 23 bytes each: when it was accepted, and its id's UUID; a TTL that its newest renews
//	fb:{b}:joint:<x>  string id of the job that is under way for all who ask for x; gone with its end, a TTL past its longest life
//	fb:{b}:rest:<x>   string until when no refresh of x is placed, since one failed, and how long that rest is, µs; gone with a success,
//	                         a TTL 10 min past the rest
//	fb:{b}:callbacks  zset   job id → µs from which on its callback is due; whoever sends it takes it out
//
// Channels: fb:{b}:wake (ask for slots now), fb:{b}:abort (a job id whose call is to be aborted), fb:{b}:final (id of a job, or of a
// share, that has reached its final state), fb:{b}:moved (a job id: it waits again, is delayed or runs, or is to be canceled) and
// fb:{b}:callback (there is one to send).
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

// clientTag is a client's name in the line's keys: short, of one length, and nothing a client chose.
func clientTag(client string) string {
	sum := sha256.Sum256([]byte(client))
	tag := hex.EncodeToString(sum[:tagBytes])
	if jobs.IsAnonymous(client) {
		tag += anonymousMark
	}
	return tag
}

const tagBytes = 8 // of SHA-256: nobody finds two clients that share them

// anonymousMark ends the tag of a caller without a key: what is left of a job that is gone tells by it
// that the job was its bearer's. All tags are hexadecimal.
const anonymousMark = "a"
