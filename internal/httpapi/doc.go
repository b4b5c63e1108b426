// Package httpapi is the front path and the admin API: what comes in over HTTP, and what goes back.
//
// It composes the packages below it and decides nothing itself. A POST goes through them in this order (submit.go), and the first
// that objects answers:
//
//	read ─▶ identify ─▶ operation ─▶ cost ─▶ idempotency ─▶ limits ─▶ line ─▶ 202
//	 4xx      401       403, 404      422      replay          └─────────┴────▶ overload: stale answer, or 429
//
// A gateway's question (check.go) goes the same way up to the limits. Which limits apply to a request is said in one place, a pure
// function of the caller's tier, country and own limits, of the operation, and of whether the caller is new (plan.go).
//
// Every answer leaves by call (call.go): there the request gets its id, errors become problems, the RateLimit fields are
// written, panics end and metrics count. Handlers say only what is theirs.
//
// Work in the store is bounded by one context a request (storeTime), which a client that hangs up doesn't end, so
// that nothing is left half done. Answers so come within a second whatever Redis does.
//
// # Idempotency keys
//
// An Idempotency-Key counts per operation: a job's id is derived from client, operation and key. A
// key that a client uses for two operations makes two jobs, as users of other services expect. The
// same key and operation with another body is refused.
//
// # Fallback operations
//
// A fallback operation makes a job of its own. The limits and the line are that operation's; only
// the decision (degraded) is the first operation's. It is offered in a second call, after the first
// one was refused. The key of such a job is apart from the fallback operation's own keys.
//
// # Results
//
// A result is served as what it is. The fields that describe it are kept with its type, in at most
// 1 KiB (jobs.Fields), since every look at the job reads them. The worker decompresses gzip and
// deflate when the answer arrives, so later readers find plain bytes; another coding keeps its
// Content-Encoding. A browser that is led to a result runs none of it: sandbox, and attachment for
// types that it would run. The content is the backend's, or a client's own, on this origin.
//
// The result of a failed job is 424. The problem says why, and has the backend's answer. A 5xx
// would make clients retry, and proxies believe that Forebay is down.
//
// # Recent limits
//
// Fresh and stale answers, replays and polls have RateLimit fields although they spend nothing.
// Reading the limits for each of them would be half of their cost in Redis. So each process
// remembers its last decision about a client for 1 s (200 ms for polls). A client's own requests
// through the process are always included: a decision drops all that was remembered, and a read
// that began before the decision is ignored.
//
// # Trials of a sick backend
//
// While a backend is sick, stale answers go before the line, and only successful calls raise its
// rate. So one request per operation, process and 5 s goes to the line although a stale answer is
// there. A rising rate needs no more.
//
// # Job watches
//
// A held answer is notified of its job's moves; it doesn't poll. Each process has one pub/sub
// connection, on which every move of its backends' jobs is named. A job watch looks at its job when
// the job is named. A message can be missed only if the connection breaks, so every watch looks
// once after a reconnect, and a connection that no longer answers pings is closed. While Redis is
// unavailable, long polls are answered with the last known state, and streams end with a time to
// come back. Workers don't subscribe to moves.
//
// # Metrics and logs
//
// No text of a client's choosing reaches the metrics. Labels are names from the config (operations,
// backends, limits) and fixed words.
//
// Refused and degraded answers are logged at info, the first 100 a second. Accepted ones are logged
// at debug, since the worker logs the end of each job. Metrics count all of them.
package httpapi
