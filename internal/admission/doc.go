// Package admission decides what a request for a job gets: a job, a stored answer, something
// simpler, or a refusal. It knows nothing of HTTP.
//
// [Admission.Submit] takes a [Request] through these steps; the first that has an answer ends it
// (submit.go):
//
//	known answer ─▶ admit ───────────▶ on_overload
//	a fresh one,    one script:        a stale answer, a fallback operation,
//	or a stale one  limits and line    a fixed body; otherwise the refusal
//
// The result is an [Outcome], a sum type with the decision and what its answer needs. The caller
// turns it into a response.
//
// # Which limits apply
//
// A [Plan] has the limits that apply to one kind of request, and the weight of its job in the line.
// One pure function selects the limits, by the caller's tier, country and own limits, by the
// operation, and by whether the caller is new (plan.go).
//
// # Words
//
// A submission is one request on its way through Submit. A fallback operation is an operation of
// another's on_overload list; its job answers a request that was refused. A duplicate request has
// the Idempotency-Key of an earlier one. Recent limits are what a process remembers of where a
// client's limits stood a moment ago.
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
// the decision (degraded) is counted for the first operation. The job is offered in a second call,
// after the first was refused. Its Idempotency-Key doesn't collide with those of requests for the
// fallback operation itself.
//
// # Recent limits
//
// Fresh and stale answers, replays and polls have RateLimit fields although they spend nothing.
// Reading the limits for each of them would be half of their cost in Redis. So each process
// remembers its last decision about a client for 1 s (200 ms for polls). A client's own requests
// through the process are always included: a decision drops all that was remembered of the client,
// and a read that began before the decision is ignored.
//
// # Trials of a sick backend
//
// While a backend is sick, stale answers are served before the line is tried, but only successful
// calls raise the backend's rate. So one request per operation, process and 5 s goes to the line
// although there is a stale answer. That is enough for the rate to rise.
package admission
