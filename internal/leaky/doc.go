// Package leaky is one backend's line and its drain: it decides when each job may run.
//
// A [Line] has one method per step of a job: [Line.Offer] puts it into the line, [Line.Release]
// grants slots, [Line.Start] and [Line.Settle] begin and end an attempt. Each step is one Lua
// script, so it is atomic, and each takes its time from Redis. Nothing here calls a backend:
// package worker does. docs/drain.md describes the states, the arithmetic and the promises.
//
// # Keys
//
// The record of a job (job:<id>) and its standing (state:<id>) are two keys. The record is written
// once, as one string. The standing, a small hash, begins with the first release. A waiting job is
// thus its record, its place in the line and an entry in its client's list, no more, which keeps
// memory small.
//
// The scripts build the keys of single jobs from the backend's prefix, since release can't name in
// advance the jobs that it will take from the line. All keys of a backend share one hash tag, so
// this is right on Redis Cluster. It isn't on servers that refuse undeclared keys. The limits' part
// of a script declares every key.
//
// # Order
//
// Each client has one fair-queueing flow per priority. With a single flow, a client's own low jobs,
// whose tags lie far ahead, would hold back its high ones. With a flow per priority a client can
// use at most the sum of the weights (5.25 instead of 4), and high means what users expect.
//
// # Duplicate requests
//
// An Idempotency-Key can make a job of its operation or of a fallback operation. Each of those
// offers names the others ([Offer.Others]), and the script answers with the job that is on record.
//
// # Subscriptions
//
// Requests that may have the same stored answer may share one job; the key of that answer names it
// ([Offer.Join]). Each caller gets a subscription with a job id of its own: its status, cancel,
// permits, Idempotency-Key and purge are its own.
//
// The answer says which callers may see it, so that is known only at the job's end. Subscriptions
// that may not see it become jobs of their own before the shared job is settled, in bounded steps.
// Each step leaves nothing half done: if a worker dies between two, the job runs again for the
// subscriptions that are left.
//
// # A sick backend
//
// The drain slows for a backend in trouble by a rate factor, a gate and a probe. They are in Redis
// beside the slots, so one worker's 429 slows all workers. The factor stretches the interval
// between slots. How far slots may lag stays that of the full rate, so no burst follows when the
// rate rises again. From the moment a gate closes until a probe passes, only the probe's answer
// counts: answers to older calls describe the backend as it was.
//
// # Failed jobs
//
// Failed jobs are an index, not a state of their own. A redriven job is the same job with its
// attempts forgotten, and the books take it out of failed.
//
// # The reconciler
//
// All keys of a backend change together in one script, so the scripts leave nothing half done. A
// replica that is promoted without the last writes, an eviction or a person with redis-cli can
// still remove keys. The reconciler repairs that. It goes through a bounded part at a time, and
// never scans the keyspace.
package leaky
