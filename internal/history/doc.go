// Package history keeps what happened in Redis, for all processes together: tallies by time
// ([Tallies]) and events ([Events]).
//
// # Tallies
//
// Each process counts decisions in its memory, and every 5 s adds what it counted to the bucket in
// which that was. What all processes see alike (the line's depth, the rates in force, the books) is
// a sample: the first process to report after a bucket takes it, and it is written and never added.
// The books only grow, so what began and ended in a bucket is the difference between two samples,
// exactly, also when some are missing.
//
// There are two tiers: 5 s buckets for 2 h, and 1 min buckets for 48 h. 120 buckets of a tier and a
// backend make a chunk, a hash with one string for each count: three bytes for each bucket. Absent
// counts take no memory. A chunk has at most 23 counts, so a backend takes at most 400 KB, mostly
// far less.
//
// # Costs
//
// A process sends one command every 5 s for each 16 backends, and the one that samples another and
// a status of each backend. Readings are remembered: a chunk that can't change until it expires,
// and the one that changes for a second, or longer with many backends. So all readers of a process
// together cost less than four commands a second, and one more for events.
package history
