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
// The result is an [Outcome], a sum type that says what was decided and carries what an answer is
// made of. Turning it into a response is its caller's work.
//
// # Which limits apply
//
// A [Plan] is the limits that apply to one kind of request, and the weight of its job in the line.
// Which limits those are is said in one place, a pure function of the caller's tier, country and
// own limits, of the operation, and of whether the caller is new (plan.go).
//
// # Words
//
// A submission is one request on its way through Submit. A fallback operation is an operation of
// another's on_overload list; its job answers a request that was refused. A duplicate request has
// the Idempotency-Key of an earlier one. Recent limits are what a process remembers of where a
// client's limits stood a moment ago.
package admission
