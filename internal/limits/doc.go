// Package limits decides whether a request may enter: it asks every limit that applies,
// and the answer is one verdict.
//
// # Words
//
// A limit is a rule as the operator wrote it: so much per window, counted per client, address,
// operation, client and operation, tier, country, or for all together. Compiled it is a [Rule].
//
// A shadow limit is counted as any other and never refuses; it tells whom it would have refused.
//
// A subject is whom a rule counts for. All requests with the same subject share one key.
//
// A request costs 1 or more, the same to each of its limits. The capacity is the most that a
// limit can ever let through at once; a cost above it can never fit.
//
// The room of a key is what is free at one moment, in integers of the algorithm's choosing; a
// unit is what a cost of 1 needs of it. All algorithms come down to "room ≥ cost·unit", so many
// limits of any kind are decided by one loop (arithmetic.go; then a file for each algorithm).
//
// A permit, or place, is one job's part of a concurrency limit. It is held by a member, the job's id, from
// the charge to the job's end (places.go).
//
// A debit is a charge without a question: what other regions have spent (debit.go).
//
// A source keeps the keys' states and answers questions about them: limits.lua on Redis, for all
// processes together, or memory, the Go model of it in this process. Tests hold the two against
// each other at every step of random histories.
//
// # One request
//
// Alice asks for a report, which costs 2. Three rules apply: 60 a minute per client (a sliding
// window counter), 10 a minute saved up to 3 per client and operation (a token bucket), 500 a
// minute for all (a token bucket).
//
//  1. [Limiter.Decide] finds the keys, each of a hashed subject and a hashed rule (keys.go).
//  2. The question waits for company: while a script call is under way, what arrives gathers,
//     and up to 64 questions go out together as the next one (package groupcommit).
//  3. The script takes Redis's time, reads each key of the batch once and brings its state to
//     that time. Alice's counter has room for 19, her bucket for 2.5, the common one for 400.
//  4. Question by question, it looks whether every key has room, and only then takes it from
//     every key. Hers all have: 17, 0.5 and 398 are left. Had the bucket held 1.5, all would
//     have been left as they were.
//  5. It writes each key that changed once, and answers with the room that is left.
//  6. From that, here and not in Lua, follow what clients are told: how much remains, when it
//     resets, and for a refusal how long to wait. All waits are exact: [Verdict.RetryAfter].
//
// For a job, [Limiter.Along] has steps 3 to 5 done by the script that also gives the job its place in the line, at the same time: what the line
// refuses is charged nothing.
//
// # On a cluster
//
// Keys of one subject share a slot, those of two don't, and a script can't leave its slot. So
// the rules are asked subject by subject. If a later subject refuses, or fails, the earlier ones get back
// what they were charged; the verdict is the same as from one script, but for an instant
// another request may see the charge.
//
// # Around the decision
//
// [Fallback] goes on by the Go model while Redis is lost, with each process's part of every limit;
// [Peers] knows how many processes there are. Through a [Region] the limits are kept together with
// those of other regions, each of which has a Redis of its own.
//
// # When things go wrong
//
// Nothing is asked twice: a lost reply is an error, and its charge stands. A clock that steps
// back locks nobody out. A key with a state that no script wrote counts as unused. On a cluster, a
// process that dies between a charge and its job's record leaves a permit taken for some seconds,
// until leaky's ReturnPermits finds it, and the other charges until their windows end.
//
// # Algorithms
//
// Each algorithm answers how much room a key has and how much a cost needs; the loop over questions
// knows nothing else about it. Four algorithms keep a short string. The log keeps a list and
// concurrency a sorted set, so neither is ever read whole. A leaky bucket used as a meter is a
// token bucket seen from below, and shares its arithmetic.
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
// The script that ends a job returns its permits. The job's record names them, since nothing else
// knows them at that moment. They are in keys of other subjects, so this works on a single Redis
// only. On a cluster, and after crashes, a process that finds a limit full checks whether the jobs
// holding its permits have ended. Waiting jobs renew nothing: a million of them would cost Redis
// its time.
//
// # Shadow limits
//
// Shadow limits are decided in the same step as the others. An enforced refusal charges no shadow
// limit, and a shadow refusal is only reported. So a trial shows exactly what it would do in force,
// and can't change what is in force.
//
// # Without Redis
//
// A gateway's check needs no record, so it can go on while Redis is unavailable; a job can't.
// [Fallback] decides checks in this process, with 1/N of every limit for the N processes last seen.
package limits
