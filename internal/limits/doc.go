// Package limits decides whether a request may enter. It compares the request with every limit that
// applies, and gives one verdict.
//
// # Words
//
// A limit is a rule as the operator wrote it: an amount per window, counted per client, address,
// operation, client and operation, tier, country, or for all together. A compiled limit is a
// [Rule].
//
// A shadow limit counts like any other and never refuses. It reports which requests it would have
// refused.
//
// The subject of a request has the parts that rules count for: the client, its address, the
// operation. All requests with the same part share one key of a rule.
//
// A request costs 1 or more, the same for each of its limits. The capacity is the most that a limit
// can ever admit at once. A cost above it can never fit.
//
// The room of a key is what is free at one moment, in integers of the algorithm's choice. A unit is
// the room that a cost of 1 needs. All algorithms come down to "room ≥ cost·unit", so one loop
// decides on limits of all kinds (arithmetic.go; each algorithm has its own file).
//
// A permit is one job's part of a concurrency limit. Its holder, the member, is the job's id, from
// the charge to the job's end (permits.go).
//
// A debit is a charge without a decision: what other regions have spent (debit.go).
//
// A source keeps the keys' states and answers questions about them. It is limits.lua on Redis, for
// all processes together, or memory, the Go model of it, in this process (model.go). Tests compare
// the two at every step of random histories.
//
// # One request
//
// Alice asks for a report, which costs 2. Three rules apply: 60 a minute per client (a sliding
// window counter), 10 a minute per client and operation, saved up to 3 (a token bucket), 500 a
// minute for all (a token bucket).
//
//  1. [Limiter.Decide] computes the keys, each of a hashed subject and a hashed rule (keys.go).
//  2. While a script call is under way, questions are collected, and up to 64 of them are sent
//     together as the next call (package groupcommit).
//  3. The script takes Redis's time, reads each key of the batch once and brings its state to
//     that time. Alice's counter has room for 19, her bucket for 2.5, the common one for 400.
//  4. For each question, it checks whether every key has room, and only then spends it on every
//     key. Here every key has room, and 17, 0.5 and 398 are left. If Alice's bucket had held 1.5,
//     no key would have changed.
//  5. It writes each changed key once, and returns the room that is left.
//  6. From that, Go code computes what clients see: how much remains, when it resets, and after a
//     refusal how long to wait. All waits are exact: [Verdict.RetryAfter].
//
// For a job, [Limiter.Along] leaves steps 3 to 5 to the script that also gives the job its place in
// the line. A request that the line refuses is charged nothing.
//
// # On a cluster
//
// Keys of one subject share a hash slot, those of two don't, and a script can't leave its slot. So
// the rules are decided subject by subject. If a rule of a later subject refuses, or the call
// fails, the charges to the earlier subjects are given back. The verdict is that of a single
// script, but for an instant another request may see the charge.
//
// # Around the decision
//
// [Fallback] decides by the Go model while Redis is unavailable, with each process's part of every
// limit. [Peers] counts the processes. Through a [Region], a Limiter counts together with other
// regions, each of which has a Redis of its own.
//
// # When things go wrong
//
// No question is asked twice: a lost reply is an error, and its charge stands. No client is locked
// out when the clock steps back. A key with a state that no script wrote counts as unused. On a
// cluster, a process that dies between a charge and its job's record leaves a permit taken for some
// seconds, until leaky's ReturnPermits finds it, and the other charges until their windows end.
//
// # Algorithms
//
// Each algorithm says how much room a key has and how much a cost needs. The loop over questions
// knows nothing else about it. Four algorithms keep a short string. The log keeps a list and
// concurrency a sorted set, which are never read whole. A leaky bucket has the token bucket's
// arithmetic, because its empty part is the token bucket's full part.
//
// # Scaled limits
//
// A limit's amount may change under its count: for a client in grace, for a region's share, or for
// a process's part. The scaled limit is the same rule with another amount. Windows, logs and
// permits count requests, so they stay on the same key. A bucket counts in parts of its own rate,
// so a scaled bucket has a key of its own and begins full.
//
// # Permits
//
// The script that ends a job returns its permits. The job's record names them, because nothing else
// knows them at that moment. They are in keys of other subjects, so this works on a single Redis
// only; on a cluster they are returned a few seconds later (cluster.go). A process that finds a
// limit full also checks whether the jobs that hold its permits have ended. Waiting jobs renew
// nothing: a million of them would take too much of Redis's time.
//
// # Shadow limits
//
// Shadow limits are decided in the same step as the others. An enforced refusal charges no shadow
// limit, and a shadow refusal is only reported. So a trial shows exactly what the limit would do in
// force, and doesn't change the effect of the limits in force.
//
// # Without Redis
//
// A gateway's check needs no record, so it can go on while Redis is unavailable; a job can't.
// [Fallback] decides checks in this process, with 1/N of every limit for the N processes last seen.
package limits
